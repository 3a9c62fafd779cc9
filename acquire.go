package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
)

// errLate marks a grant that arrived with less than half of its TTL left. It is released, and a
// Lock asks again.
var errLate = errors.New("granted too late")

// drift returns the allowance for clocks that run at different speeds: TTL/100 + 2 ms, as in the
// Redis documentation's description of Redlock.
func drift(ttl time.Duration) time.Duration {
	return ttl/100 + 2*time.Millisecond
}

// contender is one call that takes the lock, such as Lock or TryLock, while it is in progress.
type contender struct {
	mutex     *Mutex
	op        string          // opLock or opRLock; or opTryLock or opTryRLock, which do not wait
	ctx       context.Context // of the caller, as the Observer has it
	contended bool            // another owner was seen to hold the lock
	latest    error           // latest reply of the backend, or failure to reach it
	outage    outage
	first     request // the first one's context, allocated here because most calls make no other

	mu     sync.Mutex
	signal chan struct{} // sent to by wake; made by the first call of wake or wait
}

// outage tracks the requests of one call that have failed in a row, since the backend's last reply.
// A call that has queued for its turn may inherit an outage: see joinOutage.
type outage struct {
	answered bool      // the backend has answered a request of this call
	tries    int       // requests of this call
	began    time.Time // when the first of them was sent, or the call queued: see joinOutage
	since    time.Time // start of the outage: send time of its first failed request; see joinOutage
	why      error     // latest failure that says more than "no answer"; nil: there is no outage
}

// onAnswer ends the outage.
func (o *outage) onAnswer() { o.answered, o.why = true, nil }

// onFailure records the failure of a request that was sent at the given time.
func (o *outage) onFailure(sent time.Time, err error) {
	switch {
	case o.why == nil:
		o.since, o.why = sent, err
	case !silent(err):
		o.why = err
	}
}

// left returns how much longer a waiter keeps asking. An outage is ridden out for half a TTL.
func (o *outage) left(ttl time.Duration, now time.Time) time.Duration {
	if o.why == nil {
		return ttl / 2
	}
	return ttl/2 - now.Sub(o.since)
}

// hopeless reports whether a call gives up after the failure err. A short outage is ridden out if
// the caller waits. So is any failure if the backend has answered the call before. Otherwise a
// failure is retried up to firstTries, unless it is final or firstPatience has passed.
func (o *outage) hopeless(err error, waits bool, ttl time.Duration, now time.Time) bool {
	last := o.tries >= firstTries || now.Sub(o.began) > firstPatience || final(err)
	ridesOut := o.answered || waits && noanswer.Outage(o.why)
	return o.left(ttl, now) <= 0 || last && !ridesOut
}

// joinOutage lets a call that has queued for its turn since start inherit the outage in which the
// call before it failed. Queued calls thus ride out one outage together, not one after another. It
// counts from its beginning, or from start if that is later.
func (c *contender) joinOutage(start time.Time) {
	if o := c.mutex.outage.Load(); o != nil && c.waits() && !start.IsZero() {
		if o.since.After(start) {
			start = o.since
		}
		c.outage = outage{began: start, since: start, why: o.why}
	}
}

// contend runs a call that takes a hold by means of acquire, and has it observed.
func (m *Mutex) contend(ctx context.Context, op string, acquire func(*contender) (*Hold, error)) (h *Hold, err error) {
	err = m.client.observed(ctx, op, m.name, func(ctx context.Context) (r Result) {
		c := &contender{mutex: m, op: op, ctx: ctx}
		if r.Err = c.refused(); r.Err == nil {
			h, r.Err = acquire(c)
		}
		if h != nil {
			r.Token = h.token
		}
		r.Contended = c.contended
		return r
	})
	return h, err
}

// refused returns the error of a call that fails before it sends a request, or nil.
func (c *contender) refused() error {
	switch {
	case c.mutex.invalid != nil:
		return c.mutex.invalid
	case c.ctx.Err() != nil:
		return interrupted(c.ctx, nil)
	default:
		return c.waitsForItself()
	}
}

// acquire asks for the lock: until ctx ends if the call waits, once otherwise.
func (c *contender) acquire() (*Hold, error) {
	client := c.mutex.client
	if err := client.begin(); err != nil {
		return nil, err
	}
	defer client.calls.Done()
	h, err := c.ask()
	switch {
	case c.outage.why != nil:
		c.mutex.outage.Store(&outage{since: c.outage.since, why: c.outage.why})
	case c.mutex.outage.Load() != nil:
		c.mutex.outage.Store(nil)
	}
	if err != nil {
		return nil, err
	}
	if err := c.cover(h); err != nil {
		return nil, err
	}
	if n, ok := h.lease.(driver.LossNotifier); ok {
		n.NotifyLost(func() { h.lose(CauseRevoked) })
	}
	client.observers.held(c.ctx, h)
	return h, nil
}

// cover extends a hold that begins with less time than AtLeast asks for, as it may on a session
// that other holds share. There an extension, too, may bring less than a TTL: if the machine is
// busy, the next one brings more.
func (c *contender) cover(h *Hold) error {
	if h.covered() {
		return nil
	}
	var err error
	for range firstTries {
		if err = h.extend(c.ctx); err != nil {
			break
		}
		if h.covered() {
			return nil
		}
		err = fmt.Errorf("%w: it does not keep the lock for %v", ErrUnsupported, c.mutex.settings.atLeast)
	}
	if _, lost := h.conclude(); lost == nil {
		c.mutex.client.calls.Done()
	} else {
		c.mutex.client.observers.held(c.ctx, h) // they are told of its loss
	}
	return c.giveUp(h, err)
}

// Retries of a call's first request. It is retried even if its error does not look like an outage,
// because some client libraries leave it to the caller to try another connection.
const (
	firstTries    = 3                     // requests, including the first
	firstPatience = 20 * time.Millisecond // after this time a failure is not retried
	firstPause    = 10 * time.Millisecond // at most, before a retry
)

// ask sends Ask requests until one is granted or the call ends. What follows a reply:
//
//	granted              the hold begins, unless the reply came late
//	granted, but late    less than half of the TTL is left: release it; a waiter begins a new
//	                     claim, a TryLock fails
//	held by another      a waiter asks again when it is woken, or after a pause; a TryLock returns
//	                     ErrHeld
//	any other failure    the outcome is unknown: ask again with the same claim, until
//	                     outage.hopeless
//
// A TryLock whose request failed and whose retry returned ErrHeld releases the claim: the failed
// request may still arrive, and take the lock. Only a claim whose every reply was ErrHeld has left
// nothing. A waiter rides out an outage for half a TTL, which it may share with the calls before it
// (joinOutage). If that time has passed before its turn, it returns their failure without a
// request.
func (c *contender) ask() (*Hold, error) {
	var (
		set      = &c.mutex.settings
		o        = &c.outage
		h, claim = c.newClaim()
		pause    = set.backoffMin
	)
	if c.latest == nil && c.mutex.another.Load() {
		c.mutex.another.Store(false) // what an earlier call has left
	}
	if c.mutex.outage.Load() != nil && o.why == nil {
		c.joinOutage(noanswer.Start(c.ctx))
	}
	for {
		sent := clock.Now()
		patience := o.left(set.ttl, sent)
		if patience <= 0 {
			return nil, c.giveUp(h, o.why)
		}
		r := &c.first
		if o.tries++; o.tries > 1 {
			r = new(request)
		}
		if o.began.IsZero() {
			o.began = sent
		}
		next, err := claim.Ask(r.begin(c.ctx, c.mutex.client.open, patience))
		err = r.explain(err)
		r.end()
		if err == nil {
			if err = h.begin(sent, set.atLeast); err == nil {
				o.onAnswer()
				if c.contended {
					c.mutex.another.Store(false)
				}
				return h, nil
			}
		}
		over := c.over()
		if !silent(err) || over == nil && c.latest == nil {
			c.note(err)
		}
		held, late, certain := errors.Is(err, ErrHeld), errors.Is(err, errLate), o.why == nil
		if held || late {
			o.onAnswer()
		} else {
			o.onFailure(sent, err)
		}
		switch {
		case !c.waits() && held && certain:
			return nil, err // nothing is left of the claim
		case over != nil:
			return nil, c.giveUp(h, c.over()) // again, to include what note has recorded
		case !c.waits() && (late || held): // a request before this one may yet take the lock
			return nil, c.giveUp(h, err)
		case late:
			_ = c.giveUp(h, err)
			h, claim = c.newClaim()
		case !held && o.hopeless(err, c.waits(), set.ttl, clock.Now()):
			return nil, c.giveUp(h, o.why)
		}
		switch {
		case !o.answered && o.why != nil && !silent(o.why) && o.tries < firstTries:
			next = firstPause/2 + clock.Random(firstPause/2)
		case !held || next <= 0:
			next = pause/2 + clock.Random(pause/2+1)
			pause = min(2*pause, set.backoffMax)
		}
		if o.why != nil { // a long pause must leave time for another request
			next = min(next, max(o.left(set.ttl, clock.Now())/2, firstPause))
		}
		if !c.wait(next) {
			return nil, c.leaveQueue(h)
		}
	}
}

// final reports whether a retry cannot change err.
func final(err error) bool {
	return errors.Is(err, ErrUnsupported) || errors.Is(err, ErrClosed) || errors.Is(err, ErrLost)
}

// newClaim returns a fresh claim, and the Hold that it becomes if it is granted.
func (c *contender) newClaim() (*Hold, driver.Claim) {
	m := c.mutex
	req := m.request
	if req.Shared = c.shares(); c.waits() {
		req.Wake = c.wake
	}
	claim := m.client.driver.Claim(req)
	return &Hold{
		lockID: m.lockID, lease: claim, ttl: m.settings.ttl, renewed: m.settings.renew,
		shared: req.Shared, place: -1,
	}, claim
}

// giveUp releases, in the background, whatever the claim may have left at the backend. It returns
// err.
func (c *contender) giveUp(h *Hold, err error) error {
	c.mutex.client.spawn(h.cleanUp)
	return err
}

// parting is how long a Lock whose ctx has ended waits for its queue entry to be removed, which
// blocks the waiters behind it.
const parting = 5 * time.Millisecond

// leaveQueue releases the queue entry of a wait that has ended, and returns why it has.
func (c *contender) leaveQueue(h *Hold) error {
	left := make(chan struct{})
	c.mutex.client.spawn(func() {
		h.cleanUp()
		close(left)
	})
	if errors.Is(c.latest, ErrHeld) { // otherwise the backend may be unreachable
		select {
		case <-left:
		case <-time.After(parting):
		}
	}
	return c.over()
}

// over returns why the call must end, or nil: its context or the Client has ended.
func (c *contender) over() error {
	switch {
	case c.ctx.Err() != nil:
		return interrupted(c.ctx, c.latest)
	case c.mutex.client.open.Err() != nil:
		return ErrClosed
	default:
		return nil
	}
}

// note records the latest reply of the backend, or the failure of its client.
func (c *contender) note(err error) {
	c.latest = err
	held := errors.Is(err, ErrHeld)
	c.contended = c.contended || held
	c.mutex.another.Store(held)
}

// wake ends the wait in progress, or the next one if there is none.
func (c *contender) wake() {
	select {
	case c.woken() <- struct{}{}:
	default:
	}
}

// woken returns the channel by which wake ends a wait.
func (c *contender) woken() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.signal == nil {
		c.signal = make(chan struct{}, 1)
	}
	return c.signal
}

// wait waits for d, or until wake is called. It returns false if the call must end.
func (c *contender) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.woken():
	case <-t.C:
	case <-c.ctx.Done():
	case <-c.mutex.client.open.Done():
	}
	return c.over() == nil
}

// remaining returns how long a hold lasts from now if the request that granted or extended its
// lease was sent at the given time. capped reports that the lease itself lasts for less than that,
// as on a session that several holds share: to extend it again at once would gain little.
func remaining(lease driver.Claim, ttl time.Duration, sent, now time.Time) (left time.Duration, capped bool) {
	left = ttl - now.Sub(sent)
	if validity := lease.Validity(); validity < left {
		left, capped = validity, left-validity > drift(ttl)
	}
	return left - drift(ttl), capped
}
