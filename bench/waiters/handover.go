package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/stats"
	"github.com/go-locker/locker/bench/internal/wire"
)

const (
	// Long enough that the one that unlocked before waits again.
	handoverHold = 5 * time.Millisecond
	pingEvery    = 20 * time.Millisecond
)

// Handover is how long the lock was nobody's: from the call of Unlock until the Lock of one who was
// waiting had returned. The one that unlocks asks again only after that.
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
func (r *relay) run(ctx context.Context, lock contend.LockFunc, sec *contend.Section) {
	for ctx.Err() == nil {
		unlock, err := lock(ctx)
		now := time.Now()
		if err != nil {
			if ctx.Err() == nil {
				r.failed(err)
				contend.Sleep(ctx, think)
			}
			continue
		}
		sec.Enter()
		taken := r.take(now)
		time.Sleep(handoverHold)
		sec.Leave()
		r.give()
		if err := contend.Release(ctx, unlock); err != nil && ctx.Err() == nil {
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

func measureHandover(
	ctx context.Context, on *servers.Servers, l contend.Library, round int, o *options,
) (Handover, error) {
	result := Handover{Library: l.Name, Round: round, Waiters: o.handoverWaiters}
	clients, closeAll, err := l.OpenClients(o.handoverWaiters+1, on.Addrs, wire.NewTally())
	if err != nil {
		return result, err
	}
	defer closeAll()

	name := l.LockName("handover", round)
	ctx, cancel := context.WithTimeout(ctx, o.warmUp+o.duration+contend.Beyond)
	defer cancel()
	var r relay
	var sec contend.Section
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() { r.run(ctx, c.Waiter(name), &sec) })
	}
	var roundTrips []time.Duration
	if contend.Sleep(ctx, o.warmUp) {
		r.forget()
		roundTrips, err = pings(ctx, on.Redis[0], o.duration)
	}
	passes := r.soFar()
	sec.End()
	cause := context.Cause(ctx)
	cancel()
	if err := errors.Join(cause, err, contend.AwaitAll(&wg)); err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}
	slices.Sort(passes)
	slices.Sort(roundTrips)
	result.Samples = len(passes)
	result.P50Us, result.P99Us = stats.Microseconds(stats.Percentile(passes, 50)), stats.Microseconds(stats.Percentile(passes, 99))
	result.PingP50Us, result.PingP99Us = stats.Microseconds(stats.Percentile(roundTrips, 50)), stats.Microseconds(stats.Percentile(roundTrips, 99))
	result.Overlaps, result.Errors = sec.Overlaps(), len(r.errs)
	if len(r.errs) > 0 {
		result.Error = r.errs[0].Error()
	}
	return result, nil
}

// pings measures round trips for as long as d.
func pings(ctx context.Context, s *servers.RedisServer, d time.Duration) ([]time.Duration, error) {
	var took []time.Duration
	for end := time.Now().Add(d); time.Now().Before(end); {
		start := time.Now()
		if err := s.Client.Ping(ctx).Err(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
		contend.Sleep(ctx, pingEvery)
	}
	return took, nil
}
