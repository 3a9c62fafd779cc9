package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// Long enough that whoever unlocked before waits again.
	handoverHold = 5 * time.Millisecond
	pingEvery    = 20 * time.Millisecond
)

// Handover is how long the lock was nobody's: from the call of Unlock until the Lock of one who was
// waiting had returned. Whoever unlocks asks again only after that.
type Handover struct {
	Library string  `json:"library"`
	Round   int     `json:"round"`
	Waiters int     `json:"waiters"`
	Samples int     `json:"samples"`
	P50Us   float64 `json:"p50Us"`
	P99Us   float64 `json:"p99Us"`
	// Round trips of PING, meanwhile and on a connection of its own.
	PingP50Us float64 `json:"pingP50Us"`
	PingP99Us float64 `json:"pingP99Us"`
	Overlaps  int64   `json:"overlaps"`
	Errors    int     `json:"errors"`
	Error     string  `json:"error,omitempty"`
}

// relay notes when the lock changes hands.
type relay struct {
	mu       sync.Mutex
	unlocked time.Time     // when the last holder called Unlock; zero before the first
	taken    chan struct{} // closed when the last holder's successor has the lock
	passes   []time.Duration
	errs     []error
}

// take is called by each holder, and returns the channel that its successor will close.
func (r *relay) take(now time.Time) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.unlocked.IsZero() {
		r.passes = append(r.passes, now.Sub(r.unlocked))
	}
	if r.taken != nil {
		close(r.taken)
	}
	r.taken = make(chan struct{})
	return r.taken
}

func (r *relay) give() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unlocked = time.Now()
}

func (r *relay) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// run is one of those who take turns.
func (r *relay) run(ctx context.Context, lock lockFunc, sec *section) {
	for ctx.Err() == nil {
		unlock, err := lock(ctx)
		now := time.Now()
		if err != nil {
			if ctx.Err() == nil {
				r.failed(err)
				sleep(ctx, think)
			}
			continue
		}
		sec.enter()
		taken := r.take(now)
		time.Sleep(handoverHold)
		sec.leave()
		r.give()
		if err := release(ctx, unlock); err != nil && ctx.Err() == nil {
			r.failed(err)
		}
		select {
		case <-taken:
		case <-ctx.Done():
		}
	}
}

func (r *relay) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passes = nil
}

func (r *relay) soFar() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.passes)
}

func measureHandover(ctx context.Context, s *server, l library, round int, o options) (Handover, error) {
	result := Handover{Library: l.name, Round: round, Waiters: o.handoverWaiters}
	clients, closeAll, err := l.openClients(o.handoverWaiters+1, s.addr, newTally())
	if err != nil {
		return result, err
	}
	defer closeAll()

	name := fmt.Sprintf("handover-%s-%d", l.name, round)
	ctx, cancel := context.WithTimeout(ctx, o.warmUp+o.duration+beyond)
	defer cancel()
	var r relay
	var sec section
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() { r.run(ctx, c.waiter(name), &sec) })
	}
	var pings []time.Duration
	if sleep(ctx, o.warmUp) {
		r.forget()
		pings, err = s.pings(ctx, o.duration)
	}
	passes := r.soFar()
	sec.over.Store(true)
	cause := context.Cause(ctx)
	cancel()
	if err := errors.Join(cause, err, awaitAll(&wg)); err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}
	slices.Sort(passes)
	slices.Sort(pings)
	result.Samples = len(passes)
	result.P50Us, result.P99Us = microseconds(percentile(passes, 50)), microseconds(percentile(passes, 99))
	result.PingP50Us, result.PingP99Us = microseconds(percentile(pings, 50)), microseconds(percentile(pings, 99))
	result.Overlaps, result.Errors = sec.overlaps.Load(), len(r.errs)
	if len(r.errs) > 0 {
		result.Error = r.errs[0].Error()
	}
	return result, nil
}

// pings measures round trips for as long as d.
func (s *server) pings(ctx context.Context, d time.Duration) ([]time.Duration, error) {
	var pings []time.Duration
	for end := time.Now().Add(d); time.Now().Before(end); {
		start := time.Now()
		if err := s.rdb.Ping(ctx).Err(); err != nil {
			return nil, err
		}
		pings = append(pings, time.Since(start))
		sleep(ctx, pingEvery)
	}
	return pings, nil
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
