package locker

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// The renewal schedule. Due times are rounded down to a grid, so that holds are extended in
// batches. This makes a renewal early, by at most a few percent of the TTL, and never late.
const (
	renewalsPerTTL = 3
	gridPerTTL     = 32
	attemptsPerTTL = 6  // an unanswered attempt is followed by another after TTL/6
	retriesPerTTL  = 24 // a failed attempt is retried after TTL/24
)

// lookAgain is the longest time between two checks of the clocks while something is held. Timers
// stand still while the machine is suspended or frozen, and a hold that expired meanwhile must be
// lost soon after the resume.
const lookAgain = time.Second

// maxTimerDelay is the longest that it may take to set a timer. If it took longer, the process was
// paused after it read the clock, and the timer would fire late by as much: it is set again.
const maxTimerDelay = 5 * time.Millisecond

// renewal returns when to renew a hold that lasts until deadline: TTL/3 after the request that
// granted or extended it was sent, however long the reply took. A capped hold (see remaining) is
// renewed no earlier than a quarter of its remaining time from now.
func renewal(now, deadline time.Time, ttl time.Duration, capped bool) time.Time {
	due := deadline.Add(-ttl * (renewalsPerTTL - 1) / renewalsPerTTL)
	if soonest := now.Add(deadline.Sub(now) / 4); capped && due.Before(soonest) {
		due = soonest
	}
	return due.Add(-time.Duration(due.UnixNano() % max(int64(ttl/gridPerTTL), 1)))
}

// renewer schedules the events of all holds of a Client: renewals, losses at the deadline, and the
// reserves of contexts. It is one timer over a heap of holds, and has no goroutine of its own. No
// event waits for a request, so that a hold is lost in time even while its renewal hangs.
type renewer struct {
	mu    sync.Mutex
	holds holdHeap
	timer *time.Timer
	wake  time.Time // when the timer fires; zero: it is not set
	wall  wallClock
}

// schedule sets the time of h's next event. It returns false if the Client is closed. The caller
// holds h.mu, which is locked before the renewer's.
func (c *Client) schedule(h *Hold, now, due time.Time) bool {
	r := &c.renewer
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.open.Err() != nil {
		return false
	}
	h.due, h.ends = due, h.deadline
	if h.place < 0 {
		heap.Push(&r.holds, h)
	} else {
		heap.Fix(&r.holds, h.place)
	}
	c.setTimer(now)
	return true
}

func (c *Client) unschedule(h *Hold) {
	r := &c.renewer
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.place >= 0 {
		heap.Remove(&r.holds, h.place)
	}
}

// setTimer sets the timer to the earliest event, or leaves it if it fires before that. now may be
// stale, because the process may have been paused since. The caller holds renewer.mu.
func (c *Client) setTimer(now time.Time) {
	r := &c.renewer
	if len(r.holds) == 0 || c.open.Err() != nil {
		return
	}
	wake := now.Add(min(r.holds[0].due.Sub(now), lookAgain))
	if !r.wake.IsZero() && !wake.Before(r.wake) {
		return
	}
	r.wake = wake
	for {
		now = clock.Now()
		if r.timer == nil {
			r.timer = time.AfterFunc(wake.Sub(now), c.tick)
		} else {
			r.timer.Reset(wake.Sub(now))
		}
		if clock.Since(now) < maxTimerDelay {
			return
		}
	}
}

// tick handles the events that are due: it loses holds that have expired, ends contexts, and sends
// renewals.
func (c *Client) tick() {
	if c.begin() != nil {
		return
	}
	defer c.calls.Done()
	now := clock.Now()
	due, ahead := c.takeDue(now)
	if ahead > 0 && len(due) > 0 {
		c.observers.log.leapt(ahead, len(due))
	}
	renewals := map[time.Duration][]*Hold{}
	for _, h := range due {
		if h.expireIfDue() == nil && h.planNext(now, ahead > 0) {
			renewals[h.ttl] = append(renewals[h.ttl], h)
		}
	}
	for ttl, holds := range renewals {
		c.spawn(func() { c.renew(holds, ttl) })
	}
}

// takeDue returns the holds whose event is due, and by how much the wall clock has leapt ahead. If
// it has, all holds are due. They stay on the heap, where Close finds them, with a provisional due
// time until planNext has scheduled their next event.
func (c *Client) takeDue(now time.Time) (due []*Hold, ahead time.Duration) {
	r := &c.renewer
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake = time.Time{}
	if ahead = r.wall.look(now); ahead > 0 {
		for _, h := range r.holds {
			h.due = now // the same for all, so that the heap is one still
		}
	}
	for len(r.holds) > 0 && !r.holds[0].due.After(now) {
		h := r.holds[0]
		due = append(due, h)
		h.due = now.Add(lookAgain)
		if h.ends.After(now) && h.ends.Before(h.due) {
			h.due = h.ends // in case this goroutine is paused before planNext
		}
		heap.Fix(&r.holds, 0)
	}
	c.setTimer(now)
	return due, ahead
}

// planNext schedules the hold's next event, and reports whether a renewal is to be sent now. After
// a leap of the wall clock it always is. If so, the next attempt is scheduled as well, in case this
// one is not answered.
func (h *Hold) planNext(now time.Time, leapt bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != held {
		return false
	}
	due := h.renewed && (leapt || !now.Before(h.renewAt))
	if due {
		h.renewAt = now.Add(h.ttl / attemptsPerTTL)
	}
	h.client.schedule(h, now, h.nextEvent())
	return due
}

// renew extends holds that have the same TTL: in one batch if the Driver can, and concurrently
// otherwise, so that a hanging request delays no other.
func (c *Client) renew(holds []*Hold, ttl time.Duration) {
	// The next attempt is sent long before this one times out, but a late reply still counts.
	r := newRequest(context.Background(), c.background, ttl*(renewalsPerTTL-1)/renewalsPerTTL)
	defer r.end()
	d, ok := c.driver.(driver.BatchExtender)
	if !ok || len(holds) == 1 {
		var answered sync.WaitGroup
		for _, h := range holds {
			answered.Go(func() {
				c.attempt(r, []*Hold{h}, func([]driver.Claim) []error { return []error{h.lease.Extend(r, ttl)} })
			})
		}
		answered.Wait()
		return
	}
	c.attempt(r, holds, func(leases []driver.Claim) []error {
		errs := d.ExtendAll(r, leases, ttl)
		if len(errs) != len(holds) {
			errs = slices.Repeat([]error{fmt.Errorf("the Driver answered for %d of %d leases", len(errs), len(holds))}, len(holds))
		}
		return errs
	})
}

// attempt sends one renewal. If it is not answered by the time of the next attempt, it is reported
// to observers as failed.
func (c *Client) attempt(r *request, holds []*Hold, extend func([]driver.Claim) []error) {
	leases, due := make([]driver.Claim, len(holds)), make([]time.Time, len(holds))
	for i, h := range holds {
		leases[i], due[i] = h.lease, h.dueSince()
	}
	sent := clock.Now()
	slow := time.AfterFunc(holds[0].ttl/attemptsPerTTL, func() {
		if c.begin() != nil {
			return
		}
		defer c.calls.Done()
		for i, h := range holds {
			h.renewalEnded(sent, due[i], errNoAnswer, false)
		}
	})
	errs := extend(leases)
	inTime := slow.Stop()
	for i, h := range holds {
		h.renewalAnswered(sent, due[i], r.explain(errs[i]), inTime)
	}
}

// dueSince returns when the renewal of the present deadline was due. It is the same for all
// attempts at that renewal.
func (h *Hold) dueSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.renewDue
}

// renewalAnswered handles the outcome of an attempt. If it was not in time, attempt has reported it
// as failed, and the next attempt has been sent: a late failure changes nothing.
func (h *Hold) renewalAnswered(sent, due time.Time, err error, inTime bool) {
	if err = h.extended(sent, err); errors.Is(err, ErrNotHeld) {
		return // unlocked meanwhile
	}
	if err == nil || errors.Is(err, ErrLost) || inTime {
		h.renewalEnded(sent, due, err, inTime)
	}
}

// renewalEnded reports the outcome of an attempt to observers. If again is set, a failed attempt is
// retried after TTL/24, unless a later one has succeeded.
func (h *Hold) renewalEnded(sent, due time.Time, err error, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stillDue := h.state == held && due.Equal(h.renewDue)
	h.client.observers.renewed(h, Renewal{Lag: max(sent.Sub(due), 0), Err: err}, stillDue)
	if again && stillDue && err != nil {
		now := clock.Now()
		h.renewAt = now.Add(h.ttl / retriesPerTTL)
		h.client.schedule(h, now, h.nextEvent())
	}
}

// stopRenewing stops the timer of a Client that has begun to close, and returns all of its holds.
func (c *Client) stopRenewing() []*Hold {
	r := &c.renewer
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	return slices.Clone(r.holds)
}

// holdHeap has the hold with the earliest event on top. It implements [heap.Interface].
type holdHeap []*Hold

func (q holdHeap) Len() int           { return len(q) }
func (q holdHeap) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q holdHeap) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push is called by package heap.
func (q *holdHeap) Push(x any) {
	h := x.(*Hold)
	h.place = len(*q)
	*q = append(*q, h)
}

// Pop is called by package heap.
func (q *holdHeap) Pop() any {
	last := len(*q) - 1
	h := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	h.place = -1
	return h
}

// leap is by how much the wall clock must gain on package clock between two checks to suggest that
// the machine was frozen from outside, as when a host pauses a virtual machine: package clock stood
// still, and a hold may have expired at the backend. A wall clock that somebody sets forward looks
// the same, and costs one renewal. A smaller difference may be the granularity of a clock.
const leap = 50 * time.Millisecond

// wallClock detects that the machine was frozen. No hold expires by it.
type wallClock struct {
	read  func() time.Duration // clock.Ahead
	ahead time.Duration        // the latest reading
	leapt time.Time            // when a leap was last detected, by package clock
}

// watch sets the clock, and takes its first reading.
func (w *wallClock) watch(read func() time.Duration) {
	w.read, w.ahead = read, read()
}

// look returns by how much the clock has leapt ahead since the last reading, and 0 if it has not.
func (w *wallClock) look(now time.Time) time.Duration {
	was := w.ahead
	w.ahead = w.read()
	if w.ahead-was < leap {
		return 0
	}
	w.leapt = now
	return w.ahead - was
}

// leaptSince reports whether a leap was detected after a request was sent: the hold that it got
// may have expired while the machine was frozen.
func (r *renewer) leaptSince(sent time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wall.leapt.After(sent)
}
