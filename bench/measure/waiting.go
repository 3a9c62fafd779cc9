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

// What is measured while many wait for one name.

const (
	// beyond is how much longer than the measurement the contexts live that are passed to Lock: more
	// than any TTL here; see lockFunc.
	beyond = 90 * time.Second
	// Between an error and the next try.
	retry = 20 * time.Millisecond
	// Long enough that the one that unlocked before waits again.
	handoverHold = 5 * time.Millisecond
)

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

// contention is what many who want one name do.
type contention struct {
	hold, think time.Duration
	clients     int // over which waiters are spread, at most
}

// contended has each number of waiters want one name.
func contended(how contention, waiters ...int) func(context.Context, *round) error {
	return func(ctx context.Context, r *round) error {
		for _, n := range r.upTo(waiters) {
			if err := r.several(func(round int, l library) error {
				return r.contended(ctx, how, n, round, l)
			}); err != nil {
				return err
			}
		}
		return nil
	}
}

// waiter locks, holds, unlocks and thinks, until its context ends.
type waiter struct {
	contention

	lock      lockFunc
	section   *section
	measuring *atomic.Bool
	since     atomic.Pointer[time.Time] // when the wait in progress began; nil outside Lock
	waits     []time.Duration           // of the acquisitions while measuring
	errors    int
}

func (w *waiter) run(ctx context.Context) {
	var pause time.Duration
	if w.think > 0 {
		pause = rand.N(w.think) // they do not begin in step
	}
	for ; sleep(ctx, pause); pause = w.think {
		start := time.Now()
		w.since.Store(&start)
		unlock, err := w.lock(ctx)
		for err != nil {
			w.note(ctx, err)
			if !sleep(ctx, retry) { // part of the same wait
				return
			}
			unlock, err = w.lock(ctx)
		}
		wait := time.Since(start)
		w.since.Store(nil)
		w.section.enter()
		if w.measuring.Load() {
			w.waits = append(w.waits, wait)
		}
		time.Sleep(w.hold)
		w.section.leave()
		w.note(ctx, release(ctx, unlock))
	}
}

func (w *waiter) note(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !w.section.over.Load() {
		w.errors++
	}
}

func (r *round) contended(ctx context.Context, how contention, n, round int, l library) error {
	sent := newTally()
	clients, closeAll, err := l.openClients(min(how.clients, n), r.on.addrs, sent)
	if err != nil {
		return err
	}
	defer closeAll()
	name := l.lockName("contended", n, round)
	var sec section
	var measuring atomic.Bool
	ctx, cancel := context.WithTimeout(ctx, r.warmUp+r.duration+beyond)
	defer cancel()
	all := make([]*waiter, n)
	var wg sync.WaitGroup
	for i := range all {
		w := &waiter{
			contention: how, lock: clients[i%len(clients)].waiter(name), section: &sec,
			measuring: &measuring,
		}
		all[i] = w
		wg.Go(func() { w.run(ctx) })
	}
	spent, err := r.window(ctx, sent, &measuring)
	end := time.Now()
	var longest time.Duration // also of the waits that went on at the end
	for _, w := range all {
		if since := w.since.Load(); since != nil {
			longest = max(longest, end.Sub(*since))
		}
	}
	sec.over.Store(true)
	cancel()
	if err := errors.Join(err, awaitAll(&wg)); err != nil {
		return err
	}
	var waits []time.Duration
	shares := make([]int, n)
	f := figures{"overlaps": float64(sec.overlaps.Load()), "starved": 0, "errors": 0}
	for i, w := range all {
		waits = append(waits, w.waits...)
		f["errors"] += float64(w.errors)
		if shares[i] = len(w.waits); shares[i] == 0 {
			f["starved"]++
		}
	}
	f["acquisitions/s"] = float64(len(waits)) / spent.seconds
	f["wait p50 ms"], f["p99 ms"] = millis(percentile(waits, 50)), millis(percentile(waits, 99))
	f["longest ms"], f["fairness"] = millis(max(longest, percentile(waits, 100))), jain(shares)
	r.add(fmt.Sprintf("%d on %d", n, len(clients)), l, spent.each(float64(len(waits)), f))
	return nil
}

// handover measures how long the lock is nobody's: from the call of Unlock until the Lock of one of
// eight who wait has returned. The one that unlocks asks again only after that.
func handover(ctx context.Context, r *round) error {
	return r.several(func(round int, l library) error { return r.handover(ctx, round, l) })
}

// relay notes when the lock changes hands.
type relay struct {
	mu       sync.Mutex
	unlocked time.Time     // when the last holder called Unlock; zero before the first
	taken    chan struct{} // closed when the last holder's successor has the lock
	passes   []time.Duration
	errors   int
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

func (r *relay) note(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// run is one of those who take turns.
func (r *relay) run(ctx context.Context, lock lockFunc, sec *section) {
	failed := func(err error) {
		if err != nil && ctx.Err() == nil {
			r.note(func() { r.errors++ })
		}
	}
	for ctx.Err() == nil {
		unlock, err := lock(ctx)
		now := time.Now()
		if err != nil {
			failed(err)
			sleep(ctx, retry)
			continue
		}
		sec.enter()
		taken := r.take(now)
		time.Sleep(handoverHold)
		sec.leave()
		r.note(func() { r.unlocked = time.Now() })
		failed(release(ctx, unlock))
		select {
		case <-taken:
		case <-ctx.Done():
		}
	}
}

func (r *round) handover(ctx context.Context, round int, l library) error {
	clients, closeAll, err := l.openClients(9, r.on.addrs, newTally())
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, r.warmUp+r.duration+beyond)
	defer cancel()
	var turns relay
	var sec section
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() { turns.run(ctx, c.waiter(l.lockName("handover", round)), &sec) })
	}
	var pings []time.Duration
	if sleep(ctx, r.warmUp) {
		turns.note(func() { turns.passes = nil })
		end := time.Now().Add(r.duration)
		for ; time.Now().Before(end) && err == nil; sleep(ctx, 20*time.Millisecond) {
			start := time.Now()
			err = r.on.redis[0].client.Ping(ctx).Err()
			pings = append(pings, time.Since(start))
		}
	}
	sec.over.Store(true)
	cause := context.Cause(ctx)
	var passes []time.Duration
	turns.note(func() { passes = slices.Clone(turns.passes) })
	cancel()
	if err := errors.Join(cause, err, awaitAll(&wg)); err != nil {
		return err
	}
	r.add("8 waiters", l, figures{
		"p50 µs": micros(percentile(passes, 50)), "p99 µs": micros(percentile(passes, 99)),
		"PING p50 µs": micros(percentile(pings, 50)),
		"errors":      float64(turns.errors), "overlaps": float64(sec.overlaps.Load()),
	})
	return nil
}

// idle has some wait behind one long hold, each on a client of its own.
func idle(n int) func(context.Context, *round) error {
	return func(ctx context.Context, r *round) error {
		for _, l := range r.libraries {
			if err := r.idling(ctx, min(n, r.most), l); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
		return nil
	}
}

func (r *round) idling(ctx context.Context, n int, l library) error {
	sent := newTally()
	clients, closeAll, err := l.openClients(n+1, r.on.addrs, sent)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, r.idle+beyond)
	defer cancel()
	name := l.lockName("idle")
	unlock, err := clients[0].waiter(name)(ctx)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, c := range clients[1:] {
		wg.Go(func() {
			if unlock, err := c.waiter(name)(ctx); err == nil {
				_ = release(ctx, unlock)
			}
		})
	}
	sleep(ctx, r.idle/5) // they connect
	spent, err := r.on.during(ctx, sent, func() error {
		sleep(ctx, r.idle)
		return context.Cause(ctx)
	})
	cancel()
	if err := errors.Join(err, release(ctx, unlock), awaitAll(&wg)); err != nil {
		return err
	}
	r.add(fmt.Sprint(n, " waiters"), l, figures{
		"requests/s": spent.sent / spent.seconds, "run/s": spent.run / spent.seconds,
		"server µs/s": spent.serverUs / spent.seconds,
	})
	return nil
}
