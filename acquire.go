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
	outage    *outage         // nil unless the latest request has failed
	first     request         // most make no other

	mu     sync.Mutex
	early  bool          // wake was called before the contender waited
	signal chan struct{} // by wake; nil: the contender has not waited yet
}

// outage is a row of requests that have failed, since the last answer.
type outage struct {
	since time.Time // when the first was sent, or a call that has joined the outage began
	why   error     // the latest failure that says so
}

// joinOutage counts from start the outage in which another call of this Mutex has ended, if this
// one began to wait at start, and has only now its turn to ask.
func (c *contender) joinOutage(start time.Time) {
	if o := c.mutex.outage.Load(); o != nil && c.waits() && !start.IsZero() {
		if o.since.After(start) {
			start = o.since
		}
		c.outage = &outage{start, o.why}
	}
}

// rideLeft returns how much time is left to ride out the outage, if there is one.
func (c *contender) rideLeft(now time.Time) time.Duration {
	left := c.mutex.settings.ttl / 2
	if c.outage != nil {
		left -= now.Sub(c.outage.since)
	}
	return left
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
	if c.outage != nil || c.mutex.outage.Load() != nil {
		c.mutex.outage.Store(c.outage)
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

// cover extends a hold that began with less time than it is to be kept.
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
		h, claim = c.newClaim()
		began    = clock.Now()
		answered bool // the backend has answered
		pause    = set.backoffMin
	)
	if c.latest == nil && c.mutex.another.Load() {
		c.mutex.another.Store(false) // it was so for an earlier call
	}
	if c.mutex.outage.Load() != nil && c.outage == nil {
		c.joinOutage(noanswer.Start(c.ctx))
	}
	if c.outage != nil {
		began = c.outage.since
	}
	for try := 1; ; try++ {
		sent := clock.Now()
		patience := c.rideLeft(sent)
		if patience <= 0 {
			return nil, c.abandon(h, c.outage.why)
		}
		r := &c.first
		if try > 1 {
			r = new(request)
		}
		next, err := claim.Ask(r.begin(c.ctx, c.mutex.client.open, patience))
		err = r.explain(err)
		r.end()
		if err == nil {
			if err = h.begin(sent); err == nil {
				return h, nil
			}
		}
		over := c.over()
		if !silent(err) || over == nil && c.latest == nil {
			c.note(err)
		}
		held, late, first := errors.Is(err, ErrHeld), errors.Is(err, errLate), c.outage == nil
		switch {
		case held || late:
			c.outage = nil
		case first:
			c.outage = &outage{sent, err}
		case !silent(err) || silent(c.outage.why):
			c.outage = &outage{c.outage.since, err}
		}
		switch {
		case !c.waits() && held && first:
			return nil, err // nothing is left of the claim
		case over != nil:
			return nil, c.abandon(h, c.over()) // with what was answered
		case !c.waits() && (late || held): // a request before this one may yet take the lock
			return nil, c.abandon(h, err)
		case late:
			_ = c.abandon(h, err)
			h, claim = c.newClaim()
			fallthrough
		case held:
			answered = true
		default:
			last := try >= firstTries || clock.Since(began) > firstPatience || final(err)
			ridesOut := answered || c.waits() && noanswer.Outage(c.outage.why)
			if c.rideLeft(clock.Now()) <= 0 || last && !ridesOut {
				return nil, c.abandon(h, c.outage.why)
			}
		}
		switch {
		case !answered && c.outage != nil && !silent(c.outage.why) && try < firstTries:
			next = firstPause/2 + clock.Random(firstPause/2)
		case !held || next <= 0:
			next = pause/2 + clock.Random(pause/2+1)
			pause = min(2*pause, set.backoffMax)
		}
		if c.outage != nil { // a long pause leaves time for another request
			next = min(next, max(c.rideLeft(clock.Now())/2, firstPause))
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
	return &Hold{lockID: m.lockID, lease: claim, ttl: m.settings.ttl, renewed: m.settings.renew,
		atLeast: m.settings.atLeast, shared: req.Shared, place: -1}, claim
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
