// Package contention runs many parties that contend for one lock, and judges the intervals of their
// holds.
package contention

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
	"github.com/go-locker/locker/conformance/internal/party"
)

// A contention ends after manyHolds, or after Time if there were FewHolds by then, and at the
// latest after longest: enough to catch a Locker that fails to exclude one time in two hundred.
const (
	manyHolds = 5000
	FewHolds  = 1000
	Time      = 2 * time.Second
	longest   = 2 * Time

	// Fewer holds than scarce may well not show a breach that happens once in 500 holds.
	scarce = 300
)

// Interval is one observed hold: From is after Lock returned, To before Unlock was called. The lock
// counts as held throughout, even if the holder was notified of a loss, because nobody ended the
// hold; but a lost hold counts no longer than its TTL assured.
type Interval struct {
	Who      string
	From, To time.Time
	token    uint64
	lost     bool // Unlock said ErrLost
}

// Contest is a contention in progress.
type Contest struct {
	Env    *party.Env
	Ctx    context.Context
	enough time.Time    // from then on FewHolds are enough
	left   atomic.Int64 // holds still to be made
	Work   func()       // called during each hold

	mu        sync.Mutex
	Intervals []Interval
}

// Run has each party lock and unlock repeatedly, in its own goroutine, and returns the intervals.
// Parties may share a Locker.
func Run(e *party.Env, parties []*party.Party, work func()) []Interval {
	ctx, cancel := context.WithTimeout(e.Context(), longest)
	defer cancel()
	c := &Contest{Env: e, Ctx: ctx, Work: work, enough: time.Now().Add(Time)}
	c.left.Store(manyHolds)
	var wg sync.WaitGroup
	for _, p := range parties {
		wg.Go(func() { c.compete(p) })
	}
	wg.Wait()
	if len(c.Intervals) == 0 {
		e.Doubtf("%d contenders, and nobody got the lock in %v", len(parties), longest)
	}
	e.Pace.Holds.Store(int64(len(c.Intervals)))
	e.Pace.Few.Store(few(c.Intervals))
	return c.Intervals
}

// few reports whether there were fewer than scarce holds, and fewer than an eighth of the number at
// the pace of the fastest tenth: a lock whose calls are slow makes no more on any machine.
func few(intervals []Interval) bool {
	holds := len(intervals)
	if holds < 5 || holds >= scarce {
		return holds < 5
	}
	all := inOrderOfGrants(intervals)
	steps := make([]time.Duration, holds-1)
	for i := range steps {
		steps[i] = all[i+1].From.Sub(all[i].From)
	}
	slices.Sort(steps)
	return longest > time.Duration(8*holds)*steps[len(steps)/10]
}

func (c *Contest) compete(p *party.Party) {
	for left := c.left.Add(-1); left >= 0; left = c.left.Add(-1) {
		if left < manyHolds-FewHolds && time.Now().After(c.enough) {
			return
		}
		switch err := p.Lock(c.Ctx); {
		case err != nil && party.Ended(c.Ctx, err):
			return
		case errors.Is(err, locker.ErrLost):
			time.Sleep(time.Millisecond) // another goroutine has to unlock first
			continue
		case err != nil:
			c.Env.Decide(&engine.Doubt{Seen: err})
			return
		}
		if !c.Hold(p) {
			return
		}
	}
}

// Hold locks, works and unlocks once.
func (c *Contest) Hold(p *party.Party) (ok bool) {
	t := Interval{Who: p.Who, From: time.Now(), token: p.Token()}
	c.Work()
	t.To = time.Now()
	until := p.Until()
	err := p.Unlock()
	if t.lost = errors.Is(err, locker.ErrLost); t.lost && until.Before(t.To) {
		t.To = until
	}
	if err != nil && !t.lost {
		err = fmt.Errorf("%s's Unlock, the only one after a successful Lock: %w", p.Who, err)
		if !errors.Is(err, locker.ErrNotHeld) {
			err = &engine.Doubt{Seen: err} // to a paused machine a server seems silent
		}
		p.Env.Decide(err)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Intervals = append(c.Intervals, t)
	return true
}

// Linger yields to other goroutines, which should find the lock held.
func Linger() {
	for range rand.IntN(4) {
		runtime.Gosched()
	}
}

// Dwell lingers, and sometimes sleeps long enough for a wrongly granted Lock to return before the
// holder unlocks.
func Dwell() {
	Linger()
	if rand.N(8) == 0 {
		time.Sleep(rand.N(2 * time.Millisecond))
	}
}

// ending describes the result of Unlock.
func (t Interval) ending() string {
	if t.lost {
		return fmt.Sprintf("%s's Unlock said ErrLost, though nobody had ended its hold", t.Who)
	}
	return fmt.Sprintf("%s's Unlock said nil", t.Who)
}

// inOrderOfGrants returns the intervals sorted by From.
func inOrderOfGrants(intervals []Interval) []Interval {
	return slices.SortedFunc(slices.Values(intervals), func(a, b Interval) int { return a.From.Compare(b.From) })
}

// Disjoint ends the trial if two holds overlap.
func Disjoint(e *party.Env, intervals []Interval) {
	var before Interval // the interval with the latest To so far
	for i, t := range inOrderOfGrants(intervals) {
		if t.lost && !t.From.Before(t.To) { // it had expired when Lock returned
			continue
		}
		if t.From.Before(before.To) {
			both := min(before.To.Sub(t.From), t.To.Sub(t.From))
			e.Failf("%s and %s held the lock at once, for %v: %s; %s; hold %d of %d",
				before.Who, t.Who, both, before.ending(), t.ending(), i+1, len(intervals))
		}
		if t.To.After(before.To) {
			before = t
		}
	}
	e.Logf("%d holds, none at the same time as another", len(intervals))
}

// Rising ends the trial unless later holds have larger tokens. It ignores lost holds, whose order
// relative to other grants is unknown.
func Rising(e *party.Env, intervals []Interval) {
	intervals = slices.DeleteFunc(inOrderOfGrants(intervals), func(t Interval) bool { return t.lost })
	for i := 1; i < len(intervals); i++ {
		a, b := intervals[i-1], intervals[i]
		if a.To.Before(b.From) && cmp.Compare(a.token, b.token) >= 0 {
			e.Failf("%s held with the token %d, and then %s with %d; hold %d of %d", a.Who, a.token, b.Who, b.token, i+1, len(intervals))
		}
	}
}

// Queue has each of the waiters lock once. served waits until all have unlocked, and returns their
// holds.
func Queue(e *party.Env, waiters []*party.Party) (served func() []Interval) {
	ctx, cancel := context.WithTimeout(e.Context(), e.Long+e.Patience)
	c := &Contest{Env: e, Ctx: ctx, Work: func() { time.Sleep(5 * time.Millisecond) }}
	errs := make(chan error, len(waiters))
	for _, p := range waiters {
		e.Spawn(func() {
			err := p.Lock(ctx)
			if err == nil {
				c.Hold(p) // ends the trial if it fails
			} else {
				err = fmt.Errorf("%s: %w", p.Who, err)
			}
			errs <- err
		})
	}
	return func() []Interval {
		defer cancel()
		for i := range waiters {
			if err := <-errs; err != nil {
				e.Doubtf("%d of %d waiters were served, then %v", i, len(waiters), err)
			}
		}
		return c.Intervals
	}
}
