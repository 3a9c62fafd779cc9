package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	hold  = time.Millisecond
	think = 20 * time.Millisecond

	// How much longer than the measurement the contexts live that are passed to Lock; see lockFunc.
	beyond = ttl + time.Minute
	// How long an Unlock may take, and the end of all waiters.
	patience = 30 * time.Second
)

// Contended is one cell of the table of waiters: one name, and everybody wants it.
type Contended struct {
	Library string `json:"library"`
	Round   int    `json:"round"`
	Waiters int    `json:"waiters"`
	Clients int    `json:"clients"`
	Load    Load   `json:"load"`

	Acquisitions int `json:"acquisitions"`
	// The wait percentiles are of the waits that ended within the measurement. The maximum is also of
	// those that went on at its end, as far as they had come.
	WaitP50Ms float64 `json:"waitP50Ms"`
	WaitP99Ms float64 `json:"waitP99Ms"`
	WaitMaxMs float64 `json:"waitMaxMs"`
	Jain      float64 `json:"jain"`
	Starved   int     `json:"starved"` // waiters without any acquisition
	Errors    int     `json:"errors"`  // of Lock and Unlock
	Error     string  `json:"error,omitempty"`
	Overlaps  int64   `json:"overlaps"` // holds that began while another lasted
}

func (c *Contended) rate() float64 { return float64(c.Acquisitions) / c.Load.Seconds }

func (c *Contended) each(total float64) float64 { return total / float64(max(c.Acquisitions, 1)) }

// section is what the lock protects.
type section struct {
	inside, overlaps atomic.Int64
	over             atomic.Bool // holds that begin from now on do not count
}

func (s *section) enter() {
	if s.inside.Add(1) > 1 && !s.over.Load() {
		s.overlaps.Add(1)
	}
}

func (s *section) leave() { s.inside.Add(-1) }

// waiter locks, holds, unlocks and thinks, until its context ends.
type waiter struct {
	lock      lockFunc
	section   *section
	measuring *atomic.Bool
	since     atomic.Pointer[time.Time] // when the wait under way began; nil outside Lock

	waits  []time.Duration // of the acquisitions while measuring
	errors int
	err    error // the first
}

func (w *waiter) run(ctx context.Context) {
	for pause := rand.N(think); sleep(ctx, pause); pause = think {
		start := time.Now()
		w.since.Store(&start)
		unlock, ok := w.acquire(ctx)
		wait := time.Since(start)
		if !ok {
			return
		}
		w.since.Store(nil)
		w.section.enter()
		if w.measuring.Load() {
			w.waits = append(w.waits, wait)
		}
		time.Sleep(hold)
		w.section.leave()
		w.note(release(ctx, unlock))
	}
}

// acquire tries again after an error, as part of the same wait, until ctx ends.
func (w *waiter) acquire(ctx context.Context) (unlockFunc, bool) {
	for {
		unlock, err := w.lock(ctx)
		if err == nil {
			return unlock, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		w.note(err)
		if !sleep(ctx, think) {
			return nil, false
		}
	}
}

func (w *waiter) note(err error) {
	if err == nil || w.section.over.Load() {
		return
	}
	w.errors++
	if w.err == nil {
		w.err = err
	}
}

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

func measureContended(ctx context.Context, s *server, l library, round, waiters int, o options) (Contended, error) {
	c := Contended{Library: l.name, Round: round, Waiters: waiters, Clients: min(waiters, o.clients)}
	sent := newTally()
	clients, closeAll, err := l.openClients(c.Clients, s.addr, sent)
	if err != nil {
		return c, err
	}
	defer closeAll()

	var sec section
	var measuring atomic.Bool
	name := fmt.Sprintf("contended-%s-%d-%d", l.name, waiters, round)
	all := make([]*waiter, waiters)
	for i := range all {
		all[i] = &waiter{lock: clients[i%len(clients)].waiter(name), section: &sec, measuring: &measuring}
	}
	ctx, cancel := context.WithTimeout(ctx, o.warmUp+o.duration+beyond)
	defer cancel()
	var wg sync.WaitGroup
	for _, w := range all {
		wg.Go(func() { w.run(ctx) })
	}
	before, after, err := s.window(ctx, sent, &measuring, o)
	end := time.Now()
	underWay := make([]time.Duration, 0, waiters)
	for _, w := range all {
		if since := w.since.Load(); since != nil {
			underWay = append(underWay, end.Sub(*since))
		}
	}
	sec.over.Store(true)
	cancel()
	if err := errors.Join(err, awaitAll(&wg)); err != nil {
		return c, fmt.Errorf("%s: %w", name, err)
	}
	c.Load = loadBetween(before, after)
	c.Overlaps = sec.overlaps.Load()
	c.sumUp(all, underWay)
	return c, nil
}

// window measures for a while, after a while.
func (s *server) window(
	ctx context.Context, sent *tally, measuring *atomic.Bool, o options,
) (before, after usage, err error) {
	if !sleep(ctx, o.warmUp) {
		return before, after, context.Cause(ctx)
	}
	if before, err = s.usage(ctx, sent); err != nil {
		return before, after, err
	}
	measuring.Store(true)
	passed := sleep(ctx, o.duration)
	measuring.Store(false)
	if !passed {
		return before, after, context.Cause(ctx)
	}
	after, err = s.usage(ctx, sent)
	return before, after, err
}

// awaitAll gives up on waiters that do not heed their context.
func awaitAll(wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("waiters still wait %v after their context ended", patience)
	}
}

func (c *Contended) sumUp(all []*waiter, underWay []time.Duration) {
	var waits []time.Duration
	shares := make([]int, len(all))
	for i, w := range all {
		waits = append(waits, w.waits...)
		shares[i] = len(w.waits)
		if len(w.waits) == 0 {
			c.Starved++
		}
		c.Errors += w.errors
		if w.err != nil && c.Error == "" {
			c.Error = w.err.Error()
		}
	}
	slices.Sort(waits)
	c.Acquisitions = len(waits)
	c.WaitP50Ms = milliseconds(percentile(waits, 50))
	c.WaitP99Ms = milliseconds(percentile(waits, 99))
	c.Jain = jain(shares)
	longest := percentile(waits, 100)
	for _, d := range underWay {
		longest = max(longest, d)
	}
	c.WaitMaxMs = milliseconds(longest)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
