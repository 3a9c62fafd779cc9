package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Idle is what waiters cost while nothing happens: each on a client of its own, behind one long hold.
type Idle struct {
	Library  string `json:"library"`
	Waiters  int    `json:"waiters"`
	WarmUp   Load   `json:"warmUp"` // from before the first connection
	Waiting  Load   `json:"waiting"`
	Overlaps int    `json:"overlaps"` // waiters that got the lock during the hold
	Error    string `json:"error,omitempty"`
}

func measureIdle(ctx context.Context, s *server, l library, o options) (Idle, error) {
	result := Idle{Library: l.name, Waiters: o.idleWaiters}
	name := "idle-" + l.name
	sent := newTally()
	start, err := s.usage(ctx, sent)
	if err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}
	clients, closeAll, err := l.openClients(o.idleWaiters+1, s.addr, sent)
	if err != nil {
		return result, err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, o.idle+beyond)
	defer cancel()
	unlock, err := clients[0].waiter(name)(ctx)
	if err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}

	held := make(chan struct{}) // closed when the hold has ended
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range clients[1:] {
		wg.Go(func() { waitOnce(ctx, c.waiter(name), held, &mu, &result) })
	}
	before, after, err := s.idleWindow(ctx, sent, o)
	close(held)
	cancel()
	releaseErr := release(ctx, unlock)
	if err := errors.Join(err, releaseErr, awaitAll(&wg)); err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}
	result.WarmUp, result.Waiting = loadBetween(start, before), loadBetween(before, after)
	return result, nil
}

// idleWindow spends a fifth of the hold on connecting and settling down.
func (s *server) idleWindow(ctx context.Context, sent *tally, o options) (before, after usage, err error) {
	if !sleep(ctx, o.idle/5) {
		return before, after, context.Cause(ctx)
	}
	if before, err = s.usage(ctx, sent); err != nil {
		return before, after, err
	}
	if !sleep(ctx, o.idle-o.idle/5) {
		return before, after, context.Cause(ctx)
	}
	after, err = s.usage(ctx, sent)
	return before, after, err
}

// waitOnce expects the lock not to come.
func waitOnce(ctx context.Context, lock lockFunc, held <-chan struct{}, mu *sync.Mutex, result *Idle) {
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
		_ = release(ctx, unlock)
	}
}
