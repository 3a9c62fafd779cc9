package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
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
)

// contention is what many who want one name do.
type contention struct {
	hold, think time.Duration
	clients     int // over which waiters are spread, at most
}

// waiter locks, holds, unlocks and thinks, until its context ends.
type waiter struct {
	*crowd
	contention

	lock  lockFunc
	since atomic.Pointer[time.Time] // when the wait in progress began; nil outside Lock
	waits []time.Duration           // of the acquisitions while measuring
}

func (w *waiter) run() {
	var pause time.Duration
	if w.think > 0 {
		pause = rand.N(w.think) // they do not begin in step
	}
	for ; sleep(w.ctx, pause); pause = w.think {
		start := time.Now()
		w.since.Store(&start)
		unlock, err := w.lock(w.ctx)
		for err != nil {
			w.note(err, retry)
			if w.ctx.Err() != nil {
				return
			}
			unlock, err = w.lock(w.ctx) // part of the same wait
		}
		wait := time.Since(start)
		w.since.Store(nil)
		if w.measuring.Load() {
			w.waits = append(w.waits, wait)
		}
		w.section(w.hold)
		w.note(release(w.ctx, unlock), 0)
	}
}

// contended has n waiters want one name.
func (how contention) contended(ctx context.Context, r *round, n, turn int, l library) error {
	if n >= 1000 && turn > 0 {
		return nil // to connect them takes longest
	}
	c, err := r.crowd(ctx, l, min(how.clients, n))
	if err != nil {
		return err
	}
	name := l.lockName("contended", n, turn)
	all := make([]*waiter, n)
	for i := range all {
		all[i] = &waiter{crowd: c, contention: how, lock: c.clients[i%len(c.clients)].waiter(name)}
		c.wg.Go(all[i].run)
	}
	times := 1 + n/512 // each is to have a turn
	if how.hold == 0 {
		times = 4 + n/64 // and a connection first
	}
	spent, err := c.window(times)
	end := time.Now()
	var longest time.Duration // also of the waits that went on at the end
	for _, w := range all {
		if since := w.since.Load(); since != nil {
			longest = max(longest, end.Sub(*since))
		}
	}
	if err := c.end(err, 0); err != nil {
		return err
	}
	var waits []time.Duration
	for _, w := range all {
		waits = append(waits, w.waits...)
	}
	f := figures{
		"acquisitions/s": float64(len(waits)) / spent.seconds,
		"wait p50 ms":    millis(percentile(waits, 50)),
		"longest ms":     millis(max(longest, percentile(waits, 100))),
		"errors":         float64(c.failed.Load()), "overlaps": float64(c.overlaps.Load()),
	}
	r.add(fmt.Sprintf("%d on %d", n, len(c.clients)), l, spent.each(float64(len(waits)), f))
	return nil
}

// idle measures n waiters behind one long hold, each on a client of its own. Larger counts are for
// our own waiters only: pollers keep the machine busy.
func idle(ctx context.Context, r *round, n, turn int, l library) error {
	if turn > 0 || n > 50 && !strings.Contains(l.name, "locker") {
		return nil
	}
	var before, after look
	_ = r.on.ask(ctx, &before)
	c, err := r.crowd(ctx, l, n+1)
	if err != nil {
		return err
	}
	name := l.lockName("idle")
	unlock, err := c.clients[0].waiter(name)(c.ctx)
	if err != nil {
		return c.end(err, 0)
	}
	for _, one := range c.clients[1:] {
		c.wg.Go(func() {
			if unlock, err := one.waiter(name)(c.ctx); err == nil {
				_ = release(c.ctx, unlock)
			}
		})
	}
	sleep(c.ctx, r.idle/5+time.Duration(n)*time.Millisecond) // they connect
	_ = r.on.ask(ctx, &after)
	spent, err := r.on.during(c.ctx, c.sent, func() error {
		sleep(c.ctx, r.idle/2)
		return context.Cause(c.ctx)
	})
	c.cancel()
	if err := c.end(errors.Join(err, release(ctx, unlock)), 0); err != nil {
		return err
	}
	r.add(fmt.Sprint(n, " waiters"), l, figures{
		"requests/s": spent.sent / spent.seconds, "run/s": spent.run / spent.seconds,
		"server µs/s": spent.serverUs / spent.seconds, "cpu µs/s": spent.cpuUs / spent.seconds,
		"server bytes": (after.memory - before.memory) / float64(n),
	})
	return nil
}

// shares measures many readers, in ten clients, beside a writer of the same name.
func shares(ctx context.Context, r *round, readers, turn int, l library) error {
	const reading, writing = 100 * time.Millisecond, time.Millisecond
	c, err := r.crowd(ctx, l, 11)
	if err != nil {
		return err
	}
	name := l.lockName("shares", turn)
	var mu sync.Mutex // guards the waits
	var reads, writes []time.Duration
	hold := func(lock lockFunc, d time.Duration, into *[]time.Duration) {
		start := time.Now()
		unlock, err := lock(c.ctx)
		if err == nil {
			if took := time.Since(start); c.measuring.Load() {
				mu.Lock()
				*into = append(*into, took)
				mu.Unlock()
			}
			time.Sleep(d)
			err = release(c.ctx, unlock)
		}
		c.note(err, retry)
	}
	for i := range readers {
		read, _ := c.clients[i%10].shared(name)
		c.wg.Go(func() {
			for !c.over.Load() {
				hold(read, reading, &reads)
			}
		})
	}
	_, write := c.clients[10].shared(name)
	c.wg.Go(func() {
		for sleep(c.ctx, time.Second) && !c.over.Load() {
			hold(write, writing, &writes)
		}
	})
	spent, err := c.window(5) // after the writer has been there
	if err := c.end(err, patience); err != nil {
		return err
	}
	n := float64(len(reads) + len(writes))
	r.add(fmt.Sprint(readers, " readers"), l, spent.each(n, figures{
		"holds/s": n / spent.seconds, "write p50 ms": millis(percentile(writes, 50)),
		"longest write ms": millis(percentile(writes, 100)),
		"longest read ms":  millis(percentile(reads, 100)), "errors": float64(c.failed.Load()),
	}))
	return nil
}
