package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

const (
	// simPatience is how long a waiter of the simulation waits at most. By then a majority has
	// answered it many times.
	simPatience = 30 * time.Second

	calmDelay  = time.Millisecond       // of a message, at most, where nothing goes wrong
	calmMargin = 5 * time.Millisecond   // by which a waiter has to come later, to be sure of a later place
	calmWait   = 500 * time.Millisecond // of any of a few waiters, whose holds are of some milliseconds
)

// simWaiter is one wait under way.
type simWaiter struct {
	began  time.Time
	before []*simWaiter // those that have to be granted the lock before it
	over   bool
}

// waitResult is what waiters have seen.
type waitResult struct {
	waited    int           // grants to them
	stalled   int           // how often one was not granted the lock
	refused   int           // how often one was told that no majority answers
	overtaken int           // how often one was granted the lock before another that had been in the queues of a majority when it came
	longest   time.Duration // until a grant
	total     time.Duration // of all grants
}

func (r *waitResult) add(o waitResult) {
	r.waited += o.waited
	r.stalled += o.stalled
	r.refused += o.refused
	r.overtaken += o.overtaken
	r.longest = max(r.longest, o.longest)
	r.total += o.total
}

// drawWaits decides who waits, and what the servers' clocks show: in one of three histories nobody
// waits, and in one all do.
func (w *world) drawWaits() {
	r := w.rand(ofWaits)
	w.waits = []float64{0, 1, r.Float64()}[w.seed%3]
	for _, s := range w.servers {
		s.ahead = time.Duration((r.Float64() - 0.5) * float64(w.skews))
	}
	if w.relax.calm {
		w.waits, w.contenders = min(1, 0.5+r.Float64()), 3+r.IntN(4)
	}
}

// wait waits for the lock.
func (c *contender) wait() (driver.Lease, error) {
	w := c.w
	ctx, cancel := context.WithTimeout(w.ctx, simPatience)
	defer cancel()
	w.mu.Lock()
	me := w.begins()
	w.waiting[c.id] = me
	w.mu.Unlock()
	lease, err := claims.Wait(ctx, c.driver, simRequest, func(error) {})
	w.count(func(r *result) {
		me.over = true
		delete(w.waiting, c.id)
		switch {
		case err == nil:
			r.waited++
			r.longest = max(r.longest, time.Since(me.began))
			r.total += time.Since(me.began)
			w.comes(me)
		case w.ctx.Err() != nil:
		case ctx.Err() != nil:
			r.stalled++
		default:
			r.refused++
		}
	})
	return lease, err
}

// try tries once to take the lock.
func (c *contender) try() (driver.Lease, error) {
	w := c.w
	w.mu.Lock()
	me := w.begins()
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), simTTL/2)
	defer cancel()
	lease, err := claims.Take(ctx, c.driver, simRequest)
	if err == nil {
		w.count(func(*result) { w.comes(me) })
	}
	return lease, err
}

// comes counts one that has overtaken another. The caller holds w.mu, as of begins.
func (w *world) comes(me *simWaiter) {
	if slices.ContainsFunc(me.before, func(o *simWaiter) bool { return !o.over }) {
		w.overtaken++
	}
}

// begins returns one that asks for the lock from now on.
func (w *world) begins() *simWaiter {
	me := &simWaiter{began: time.Now()}
	for other, o := range w.waiting {
		if me.began.Sub(o.began) > calmMargin && w.queuedAtMajority(other) {
			me.before = append(me.before, o)
		}
	}
	return me
}

// queuedAtMajority reports whether a contender is in the queues of a majority, or the lock is its
// or kept for it there.
func (w *world) queuedAtMajority(id int) bool {
	at := 0
	for _, s := range w.servers {
		s.mu.Lock()
		ours := func(e inQueue) bool { return e.owner>>32 == uint64(id+1) }
		if r := s.lock("x"); ours(r.kept) || ours(inQueue{owner: r.owner}) || slices.ContainsFunc(r.queue, ours) {
			at++
		}
		s.mu.Unlock()
	}
	return at >= majority(simNodes)
}
