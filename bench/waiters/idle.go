package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/wire"
)

// Idle is what waiters cost while nothing happens: each on a client of its own, behind one long hold.
type Idle struct {
	Library  string       `json:"library"`
	Waiters  int          `json:"waiters"`
	WarmUp   servers.Load `json:"warmUp"` // from before the first connection
	Waiting  servers.Load `json:"waiting"`
	Overlaps int          `json:"overlaps"` // waiters that got the lock during the hold
	Error    string       `json:"error,omitempty"`
}

// measureIdle spends a fifth of the hold on connecting and settling down.
func measureIdle(ctx context.Context, on *servers.Servers, l contend.Library, o *options) (Idle, error) {
	result := Idle{Library: l.Name, Waiters: o.idleWaiters}
	sent := wire.NewTally()
	ctx, cancel := context.WithTimeout(ctx, o.idle+contend.Beyond)
	defer cancel()
	sleep := func(d time.Duration) error {
		if !contend.Sleep(ctx, d) {
			return context.Cause(ctx)
		}
		return nil
	}
	var unlock contend.UnlockFunc
	var mu sync.Mutex
	var wg sync.WaitGroup
	closeAll := func() {}
	defer func() { closeAll() }()
	held := make(chan struct{}) // closed when the hold has ended
	var err error
	result.WarmUp, err = on.During(ctx, sent, func() error {
		clients, closeThem, err := l.OpenClients(o.idleWaiters+1, on.Addrs, sent)
		if err != nil {
			return err
		}
		closeAll = closeThem
		name := l.LockName("idle")
		if unlock, err = clients[0].Waiter(name)(ctx); err != nil {
			return err
		}
		for _, c := range clients[1:] {
			wg.Go(func() { waitOnce(ctx, c.Waiter(name), held, &mu, &result) })
		}
		return sleep(o.idle / 5)
	})
	if err == nil {
		result.Waiting, err = on.During(ctx, sent, func() error { return sleep(o.idle - o.idle/5) })
	}
	close(held)
	cancel()
	if unlock != nil {
		err = errors.Join(err, contend.Release(ctx, unlock))
	}
	if err := errors.Join(err, contend.AwaitAll(&wg)); err != nil {
		return result, fmt.Errorf("idle, %s: %w", l.Name, err)
	}
	return result, nil
}

// waitOnce expects the lock not to come.
func waitOnce(ctx context.Context, lock contend.LockFunc, held <-chan struct{}, mu *sync.Mutex, result *Idle) {
	unlock, err := lock(ctx)
	select {
	case <-held: // whatever came of it now, the measurement is over
	default:
		mu.Lock()
		if err == nil {
			result.Overlaps++
		} else {
			result.Error = err.Error()
		}
		mu.Unlock()
	}
	if err == nil {
		_ = contend.Release(ctx, unlock)
	}
}
