package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/redisserver"
	"github.com/go-locker/locker/bench/internal/wire"
)

// Idle is what waiters cost while nothing happens: each on a client of its own, behind one long hold.
type Idle struct {
	Library  string           `json:"library"`
	Waiters  int              `json:"waiters"`
	WarmUp   redisserver.Load `json:"warmUp"` // from before the first connection
	Waiting  redisserver.Load `json:"waiting"`
	Overlaps int              `json:"overlaps"` // waiters that got the lock during the hold
	Error    string           `json:"error,omitempty"`
}

func measureIdle(ctx context.Context, servers redisserver.Servers, l contend.Library, o options) (Idle, error) {
	result := Idle{Library: l.Name, Waiters: o.idleWaiters}
	name := "idle-" + l.Name
	sent := wire.NewTally()
	start, err := servers.Usage(ctx, sent)
	if err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}
	clients, closeAll, err := l.OpenClients(o.idleWaiters+1, servers.Addrs(), sent)
	if err != nil {
		return result, err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, o.idle+contend.Beyond)
	defer cancel()
	unlock, err := clients[0].Waiter(name)(ctx)
	if err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}

	held := make(chan struct{}) // closed when the hold has ended
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range clients[1:] {
		wg.Go(func() { waitOnce(ctx, c.Waiter(name), held, &mu, &result) })
	}
	before, after, err := idleWindow(ctx, servers, sent, o)
	close(held)
	cancel()
	releaseErr := contend.Release(ctx, unlock)
	if err := errors.Join(err, releaseErr, contend.AwaitAll(&wg)); err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}
	result.WarmUp, result.Waiting = redisserver.LoadBetween(start, before), redisserver.LoadBetween(before, after)
	return result, nil
}

// idleWindow spends a fifth of the hold on connecting and settling down.
func idleWindow(
	ctx context.Context, servers redisserver.Servers, sent *wire.Tally, o options,
) (before, after redisserver.Usage, err error) {
	if !contend.Sleep(ctx, o.idle/5) {
		return before, after, context.Cause(ctx)
	}
	if before, err = servers.Usage(ctx, sent); err != nil {
		return before, after, err
	}
	if !contend.Sleep(ctx, o.idle-o.idle/5) {
		return before, after, context.Cause(ctx)
	}
	after, err = servers.Usage(ctx, sent)
	return before, after, err
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
