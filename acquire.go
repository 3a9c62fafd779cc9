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

// errLate is matched by the error of a grant that came when less than half of the TTL was left.
// Lock tries again.
var errLate = errors.New("granted too late")

// drift returns the allowance for clocks that run at different speeds: TTL/100 + 2 ms, as in the
// Redis documentation's description of Redlock.
func drift(ttl time.Duration) time.Duration {
	return ttl/100 + 2*time.Millisecond
}

// contender is a Lock or a TryLock under way.
type contender struct {
	mutex     *Mutex
	op        string          // opLock or opRLock; or opTryLock or opTryRLock, which do not wait
	ctx       context.Context // of the caller, as the Observer has it
	contended bool            // the lock was seen to be another's
	latest    error           // answer of the backend, or failure to reach it
	outage    outage
	first     request // most make no other

	mu     sync.Mutex
	early  bool          // wake was called before the contender waited
	signal chan struct{} // by wake; nil: the contender has not waited yet
}

// outage is what a call knows of the backend's silence: the requests in a row that have failed
// since the last answer. Calls of one Mutex that wait for their turn share it by joinOutage.
type outage struct {
	answered bool      // the backend has answered a request of this call
	tries    int       // requests of this call
	began    time.Time // when the first of them was sent
	since    time.Time // when the first of the row was sent, or a call that has joined the outage began
	why      error     // the latest failure of the row that says more than silence; nil: there is no outage
}

// onAnswer ends the outage.
func (o *outage) onAnswer() { o.answered, o.why = true, nil }

// onFailure takes in that a request which was sent at sent has failed.
func (o *outage) onFailure(sent time.Time, err error) {
	switch {
	case o.why == nil:
		o.since, o.why = sent, err
	case !silent(err) || silent(o.why):
		o.why = err
	}
}

// left returns for how much longer a waiter rides out the outage: half a TTL in all.
func (o *outage) left(ttl time.Duration, now time.Time) time.Duration {
	if o.why == nil {
		return ttl / 2
	}
	return ttl/2 - now.Sub(o.since)
}

// hopeless reports whether a call gives up after the failure err. A short outage is ridden out if
// the caller waits, or the backend has answered the call before. Another failure is tried again a
// few times.
func (o *outage) hopeless(err error, waits bool, ttl time.Duration, now time.Time) bool {
	last := o.tries >= firstTries || now.Sub(o.began) > firstPatience || final(err)
	ridesOut := o.answered || waits && noanswer.Outage(o.why)
	return o.left(ttl, now) <= 0 || last && !ridesOut
}

// joinOutage counts from start the outage in which another call of this Mutex has ended, if this
// one began to wait at start, and has only now its turn to ask.
func (c *contender) joinOutage(start time.Time) {
	if o := c.mutex.outage.Load(); o != nil && c.waits() && !start.IsZero() {
		if o.since.After(start) {
			start = o.since
		}
		c.outage = outage{began: start, since: start, why: o.why}
	}
}

// contend makes a call that takes a hold, by acquire.
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

// refused returns why c does not contend at all, or nil.
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

// acquire contends for the lock: until ctx ends, or once.
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

// cover extends a hold whose lease is shorter than AtLeast asks for, as on a shared session.
func (c *contender) cover(h *Hold) error {
	if h.covered() {
		return nil
	}
	err := h.extend(c.ctx)
	if err == nil {
		if h.covered() {
			return nil
		}
		err = fmt.Errorf("%w: it does not keep the lock for %v", ErrUnsupported, h.atLeast)
	}
	if _, over := h.conclude(); over == nil {
		c.mutex.client.calls.Done()
	}
	return c.abandon(h, err)
}

// A first request that fails soon is made again, though it does not look like an outage: some
// client libraries leave it to their caller to try another connection. A TryLock waits for no more.
const (
	firstTries    = 3
	firstPatience = 20 * time.Millisecond // one that fails later is the last
	firstPause    = 10 * time.Millisecond // at most
)

// ask asks until the lock is granted, the contention is over, or the backend has not answered for
// half a TTL: a waiter rides out a short outage, and no other. If nothing was answered yet, it
// returns a failure after a few tries if it is no outage, or the caller does not wait.
//
// The half TTL of a call that had to wait until another of the process had asked counts from when
// the call began. If it is over by then, the call returns the other's failure without a request.
func (c *contender) ask() (*Hold, error) {
	var (
		set      = &c.mutex.settings
		o        = &c.outage
		h, claim = c.newClaim()
		pause    = set.backoffMin
	)
	if c.latest == nil && c.mutex.another.Load() {
		c.mutex.another.Store(false) // it was so for an earlier call
	}
	if c.mutex.outage.Load() != nil && o.why == nil {
		c.joinOutage(noanswer.Start(c.ctx))
	}
	for {
		sent := clock.Now()
		patience := o.left(set.ttl, sent)
		if patience <= 0 {
			return nil, c.abandon(h, o.why)
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
			if err = h.begin(sent); err == nil {
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
			return nil, c.abandon(h, c.over()) // with what was answered
		case !c.waits() && (late || held): // a request before this one may yet take the lock
			return nil, c.abandon(h, err)
		case late:
			_ = c.abandon(h, err)
			h, claim = c.newClaim()
		case !held && o.hopeless(err, c.waits(), set.ttl, clock.Now()):
			return nil, c.abandon(h, o.why)
		}
		switch {
		case !o.answered && o.why != nil && !silent(o.why) && o.tries < firstTries:
			next = firstPause/2 + clock.Random(firstPause/2)
		case !held || next <= 0:
			next = pause/2 + clock.Random(pause/2+1)
			pause = min(2*pause, set.backoffMax)
		}
		if o.why != nil { // a long pause leaves time for another request
			next = min(next, max(o.left(set.ttl, clock.Now())/2, firstPause))
		}
		if !c.wait(next) {
			return nil, c.leave(h)
		}
	}
}

// final reports whether err is one that asking again does not change.
func final(err error) bool {
	return errors.Is(err, ErrUnsupported) || errors.Is(err, ErrClosed) || errors.Is(err, ErrLost)
}

// newClaim returns a claim, and the hold that there will be when it is granted.
func (c *contender) newClaim() (*Hold, driver.Claim) {
	m := c.mutex
	req := m.request
	if req.Shared = c.shares(); c.waits() {
		req.Wake = c.wake
	}
	claim := m.client.driver.Claim(req)
	return &Hold{
		lockID: m.lockID, lease: claim, ttl: m.settings.ttl, renewed: m.settings.renew,
		atLeast: m.settings.atLeast, shared: req.Shared, place: -1,
	}, claim
}

// abandon gives back what there may be of a claim, in the background, and returns err.
func (c *contender) abandon(h *Hold, err error) error {
	c.mutex.client.spawn(h.cleanUp)
	return err
}

// parting is how long a Lock whose ctx has ended waits until it is out of the queue, where it
// stands in the way of others.
const parting = 5 * time.Millisecond

// leave gives up the place in the queue of a wait that is over, and returns why it is.
func (c *contender) leave(h *Hold) error {
	left := make(chan struct{})
	c.mutex.client.spawn(func() {
		h.cleanUp()
		close(left)
	})
	if errors.Is(c.latest, ErrHeld) { // else the backend may not answer
		select {
		case <-left:
		case <-time.After(parting):
		}
	}
	return c.over()
}

// over returns why the contention has ended, and nil if it has not.
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

// note keeps what the backend has answered, or how its client has failed.
func (c *contender) note(err error) {
	c.latest = err
	held := errors.Is(err, ErrHeld)
	c.contended = c.contended || held
	c.mutex.another.Store(held)
}

// wake ends the wait that there is, or the next one.
func (c *contender) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.signal == nil {
		c.early = true
		return
	}
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// wait waits for d, or until wake is called. It returns false if the contention is over.
func (c *contender) wait(d time.Duration) bool {
	c.mu.Lock()
	if c.signal == nil {
		c.signal = make(chan struct{}, 1)
	}
	signal, early := c.signal, c.early
	c.early = false
	c.mu.Unlock()
	if early {
		return c.over() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-signal:
	case <-t.C:
	case <-c.ctx.Done():
	case <-c.mutex.client.open.Done():
	}
	return c.over() == nil
}

// remaining returns how long a hold lasts from now on a lease that was granted or extended by a
// request that was sent at sent. It is capped if that is less than the request would give, as on a
// session that several holds share: to ask again at once brings little.
func remaining(lease driver.Lease, ttl time.Duration, sent, now time.Time) (left time.Duration, capped bool) {
	left = ttl - now.Sub(sent)
	if validity := lease.Validity(); validity < left {
		left, capped = validity, left-validity > drift(ttl)
	}
	return left - drift(ttl), capped
}
