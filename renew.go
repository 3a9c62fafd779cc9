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

// The rhythm of renewal. Due times fall on a grid, so that holds are extended together; the grid
// is fine enough that a renewal is early by a few percent of the TTL and never late.
const (
	renewalsPerTTL = 3
	gridPerTTL     = 32
	attemptsPerTTL = 6  // a renewal that is not answered is sent again after TTL/6
	retriesPerTTL  = 24 // one that failed at once after TTL/24
)

// lookAgain is the longest time between two looks at the clocks while something is held: timers
// stand still while the machine is suspended or frozen, and a hold that expired meanwhile must be
// lost soon after the resume.
const lookAgain = time.Second

// maxTimerDelay is how long it may take to set a timer. If it took longer, the process has stood
// still between its look at the clock and the setting, and the timer would be late by as much.
const maxTimerDelay = 5 * time.Millisecond

// renewal returns when a hold that lasts until deadline is to be renewed: TTL/3 after the request
// that granted or extended it was sent, however long the reply took. One that is capped is so after
// a quarter of what is left at the soonest.
func renewal(now, deadline time.Time, ttl time.Duration, capped bool) time.Time {
	due := deadline.Add(-ttl * (renewalsPerTTL - 1) / renewalsPerTTL)
	if soonest := now.Add(deadline.Sub(now) / 4); capped && due.Before(soonest) {
		due = soonest
	}
	return due.Add(-time.Duration(due.UnixNano() % max(int64(ttl/gridPerTTL), 1)))
}

// renewer looks after all the holds of a Client, with one timer and no goroutine of its own: it
// sends the renewals that are due together, and loses holds at their deadline. Renewals and losses
// do not wait for each other, so that a hold is lost in time while its renewal hangs.
type renewer struct {
	mu    sync.Mutex
	holds holdHeap
	timer *time.Timer
	wake  time.Time // when the timer fires; zero: it is not set
	wall  wallClock
}

// schedule makes sure that h is looked after at due. It returns false if the Client is closed. The
// caller holds h.mu, which comes before the renewer's.
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

// setTimer makes sure that the timer fires when the first hold is due. now may be a while ago: the
// process may have stood still since. The caller holds renewer.mu.
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

// tick looks after the holds that are due.
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

// takeDue returns the holds that are due, which are all of them if the wall clock has leapt, and by
// how much it has. They stay on the heap, where Close finds them, until the next event of each is
// scheduled.
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
			h.due = h.ends // should the goroutine that renews it be stopped
		}
		heap.Fix(&r.holds, 0)
	}
	c.setTimer(now)
	return due, ahead
}

// planNext schedules when the hold is looked after next, and returns true if it is to be renewed
// now, as it is in any case if leapt is set. Then the next attempt is planned too, should this one
// not be answered.
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

// renew extends holds of one TTL: in as few round trips as the Driver can, or else all at once, for
// one that hangs must not keep the others waiting.
func (c *Client) renew(holds []*Hold, ttl time.Duration) {
	// Another is sent meanwhile, but a reply that comes late counts.
	r := newRequest(context.Background(), c.background, ttl*(renewalsPerTTL-1)/renewalsPerTTL)
	defer r.end()
	d, ok := c.driver.(driver.BatchExtender)
	if !ok || len(holds) == 1 {
		var answered sync.WaitGroup
		for _, h := range holds {
			answered.Go(func() {
				c.attempt(r, []*Hold{h}, func([]driver.Lease) []error { return []error{h.lease.Extend(r, ttl)} })
			})
		}
		answered.Wait()
		return
	}
	c.attempt(r, holds, func(leases []driver.Lease) []error {
		errs := d.ExtendAll(r, leases, ttl)
		if len(errs) != len(holds) {
			errs = slices.Repeat([]error{fmt.Errorf("the Driver answered for %d of %d leases", len(errs), len(holds))}, len(holds))
		}
		return errs
	})
}

// attempt makes one renewal. If that is not answered by the time of the next it has failed for
// those who observe.
func (c *Client) attempt(r *request, holds []*Hold, extend func([]driver.Lease) []error) {
	leases, due := make([]driver.Lease, len(holds)), make([]time.Time, len(holds))
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

// dueSince returns when the renewal was due that the present deadline asks for: the same for all
// attempts at it.
func (h *Hold) dueSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.renewDue
}

// renewalAnswered takes in the outcome of a renewal. One that failed is tried again soon, unless it
// was late, and that has been done.
func (h *Hold) renewalAnswered(sent, due time.Time, err error, inTime bool) {
	if err = h.extended(sent, err); errors.Is(err, ErrNotHeld) {
		return // unlocked meanwhile
	}
	if err == nil || errors.Is(err, ErrLost) || inTime {
		h.renewalEnded(sent, due, err, inTime)
	}
}

// renewalEnded tells of a renewal that was answered or has failed. If again is true, one that has
// failed is tried again soon, unless a later one was answered.
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

// stopRenewing ends the renewer of a Client that has begun to close, and returns the holds that it
// looked after.
func (c *Client) stopRenewing() []*Hold {
	r := &c.renewer
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	return slices.Clone(r.holds)
}

// holdHeap has the hold that is due first on top. It implements [heap.Interface].
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

// leap is how far the wall clock has to go ahead of ours between two looks to tell of a machine
// that was frozen from outside, such as a virtual machine that its host paused: our clock stood
// still, and a hold may have expired at the backend. Somebody who sets the wall clock forward looks
// the same, and costs one renewal each time. Less than a leap is no more than the grain of some
// clocks.
const leap = 50 * time.Millisecond

// wallClock is looked at to tell whether the machine was frozen. No hold ends by it.
type wallClock struct {
	read  func() time.Duration // clock.Ahead
	ahead time.Duration        // what read returned last
	leapt time.Time            // when it was last seen to have leapt, by package clock
}

// watch begins to look at the clock that read reads.
func (w *wallClock) watch(read func() time.Duration) {
	w.read, w.ahead = read, read()
}

// look returns by how much the clock has leapt ahead since the last look, and 0 if it has not.
func (w *wallClock) look(now time.Time) time.Duration {
	was := w.ahead
	w.ahead = w.read()
	if w.ahead-was < leap {
		return 0
	}
	w.leapt = now
	return w.ahead - was
}

// leaptSince reports whether the wall clock was seen to leap after a request was sent: what that
// was granted may have expired.
func (r *renewer) leaptSince(sent time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wall.leapt.After(sent)
}
