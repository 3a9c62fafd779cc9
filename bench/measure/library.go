package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-locker/locker"
)

type (
	// library is one way to lock.
	library struct {
		name, module, settings string

		ttl time.Duration // of holds, or of the session that they share

		// open makes a client as a process of its own would have it, with its own connections.
		open func(addrs []string, sent *tally, ttl time.Duration) (*client, error)
	}

	// client is one process's.
	client struct {
		waiter func(name string) lockFunc // what one waiter locks with, again and again
		close  func()
	}

	// lockFunc waits until it holds the lock or ctx is done. ctx stays alive through the hold, and has a deadline further
	// off than the TTL: some libraries end the hold with ctx, or invent a deadline.
	lockFunc func(ctx context.Context) (unlockFunc, error)

	unlockFunc func(ctx context.Context) error
)

const lockerModule = "github.com/go-locker/locker"

// clientOf is a client of ours on connections that are closed after it.
func clientOf(c *locker.Client, closeConns func()) *client {
	return &client{
		waiter: func(name string) lockFunc {
			m := c.Mutex(name)
			return func(ctx context.Context) (unlockFunc, error) { return m.Unlock, m.Lock(ctx) }
		},
		close: func() { _ = c.Close(); closeConns() },
	}
}

// lockName is one that all servers allow.
func (l library) lockName(what string, details ...any) string {
	parts := fmt.Sprintln(append([]any{what, l.name}, details...)...)
	return strings.NewReplacer(" ", "-", ",", "-").Replace(strings.TrimSpace(parts))
}

// openClients opens n clients, or none.
func (l library) openClients(n int, addrs []string, sent *tally) ([]*client, func(), error) {
	clients := make([]*client, 0, n)
	closeAll := func() {
		for _, c := range clients {
			c.close()
		}
	}
	for range n {
		c, err := l.open(addrs, sent, l.ttl)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		clients = append(clients, c)
	}
	return clients, closeAll, nil
}

// once locks and unlocks once.
func once(ctx context.Context, lockIt lockFunc) (lock, unlock time.Duration, err error) {
	start := time.Now()
	unlockIt, err := lockIt(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("lock: %w", err)
	}
	locked := time.Now()
	if err := unlockIt(ctx); err != nil {
		return 0, 0, fmt.Errorf("unlock: %w", err)
	}
	return locked.Sub(start), time.Since(locked), nil
}

// release unlocks also if ctx has ended.
func release(ctx context.Context, unlock unlockFunc) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return unlock(ctx)
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
