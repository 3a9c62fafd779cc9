package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
)

// Contention goes on until so many holds or so much time, and longer if there were few: a Locker that fails
// to exclude one time in two hundred has to be caught.
const (
	manyHolds      = 5000
	fewHolds       = 1000
	contentionTime = 2 * time.Second
	longest        = 2 * contentionTime
	contenders     = 8
)

// interval is one hold that was seen from Lock to Unlock: from is after Lock returned, to before
// Unlock was called. It was held all that time. That its holder was told of a loss is no excuse,
// for nobody has ended it; but then it was held no longer than it was to last.
type interval struct {
	who      string
	from, to time.Time
	token    uint64
	lost     bool // Unlock said ErrLost
}

// contest is a contention under way.
type contest struct {
	env    *env
	ctx    context.Context
	enough time.Time    // when few holds will do
	left   atomic.Int64 // holds still to be had
	work   func()       // what a holder does

	mu        sync.Mutex
	intervals []interval
}

// contend has each party lock and unlock again and again, in a goroutine of its own, and returns
// the intervals. Parties may share a Locker.
func (e *env) contend(parties []*party, work func()) []interval {
	ctx, cancel := context.WithTimeout(e.Context(), longest)
	defer cancel()
	c := &contest{env: e, ctx: ctx, work: work, enough: time.Now().Add(contentionTime)}
	c.left.Store(manyHolds)
	var wg sync.WaitGroup
	for _, p := range parties {
		wg.Go(func() { c.compete(p) })
	}
	wg.Wait()
	if len(c.intervals) == 0 {
		e.doubtf("%d contenders, and nobody got the lock in %v", len(parties), longest)
	}
	return c.intervals
}

func (c *contest) compete(p *party) {
	for left := c.left.Add(-1); left >= 0; left = c.left.Add(-1) {
		if left < manyHolds-fewHolds && time.Now().After(c.enough) {
			return
		}
		switch err := p.lock(c.ctx); {
		case c.ctx.Err() != nil && err != nil:
			return
		case errors.Is(err, locker.ErrLost):
			time.Sleep(time.Millisecond) // another goroutine has to unlock first
			continue
		case err != nil:
			c.env.end(&engine.Doubt{Seen: err})
			return
		}
		if !c.hold(p) {
			return
		}
	}
}

// hold locks, works and unlocks once.
func (c *contest) hold(p *party) (ok bool) {
	t := interval{who: p.who, from: time.Now(), token: p.token()}
	c.work()
	t.to = time.Now()
	until := p.until()
	err := p.unlock()
	if t.lost = errors.Is(err, locker.ErrLost); t.lost && until.Before(t.to) {
		t.to = until
	}
	if err != nil && !t.lost {
		err = fmt.Errorf("%s's Unlock, the only one after a successful Lock: %w", p.who, err)
		if !errors.Is(err, locker.ErrNotHeld) {
			err = &engine.Doubt{Seen: err} // to a machine that pauses a server is silent
		}
		p.env.end(err)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.intervals = append(c.intervals, t)
	return true
}

// linger lets others run, who should find the lock held.
func linger() {
	for range rand.IntN(4) {
		runtime.Gosched()
	}
}

// dwell is linger, and now and then so long that a thief is back, with the lock, before the holder unlocks.
func dwell() {
	linger()
	if rand.N(8) == 0 {
		time.Sleep(rand.N(2 * time.Millisecond))
	}
}

// losses is how many of the holds were lost.
func losses(intervals []interval) (n int) {
	for _, t := range intervals {
		if t.lost {
			n++
		}
	}
	return n
}

// ending says what Unlock returned.
func (t interval) ending() string {
	if t.lost {
		return fmt.Sprintf("%s's Unlock said ErrLost, though nobody had ended its hold", t.who)
	}
	return fmt.Sprintf("%s's Unlock said nil", t.who)
}

// inOrderOfGrants returns the intervals in their order.
func inOrderOfGrants(intervals []interval) []interval {
	return slices.SortedFunc(slices.Values(intervals), func(a, b interval) int { return a.from.Compare(b.from) })
}

// disjoint ends the trial if two held at once.
func (e *env) disjoint(intervals []interval) {
	var before interval // the one that ends last, of those so far
	for i, t := range inOrderOfGrants(intervals) {
		if t.lost && !t.from.Before(t.to) { // its time was over when Lock returned
			continue
		}
		if t.from.Before(before.to) {
			both := min(before.to.Sub(t.from), t.to.Sub(t.from))
			e.failf("%s and %s held the lock at once, for %v: %s; %s; hold %d of %d",
				before.who, t.who, both, before.ending(), t.ending(), i+1, len(intervals))
		}
		if t.to.After(before.to) {
			before = t
		}
	}
	e.Logf("%d holds, none at the same time as another", len(intervals))
}

// rising ends the trial if a later hold has no larger token. Of one that was lost nobody knows when others were granted.
func (e *env) rising(intervals []interval) {
	intervals = slices.DeleteFunc(inOrderOfGrants(intervals), func(t interval) bool { return t.lost })
	for i := 1; i < len(intervals); i++ {
		a, b := intervals[i-1], intervals[i]
		if a.to.Before(b.from) && cmp.Compare(a.token, b.token) >= 0 {
			e.failf("%s held with the token %d, and then %s with %d; hold %d of %d", a.who, a.token, b.who, b.token, i+1, len(intervals))
		}
	}
}
