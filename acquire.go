package locker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

// errNoAnswer is the error of an attempt that the backend has not answered.
var errNoAnswer error = outage.NoAnswer("the backend has not answered in time")

// errLate is matched by the error of a grant that came when less than half of the TTL was left. Lock tries again.
var errLate = errors.New("granted too late")

// drift is the allowance for clocks that run at different speeds: TTL/100 + 2 ms, as in the Redis
// documentation's description of Redlock.
func drift(ttl time.Duration) time.Duration {
	return ttl/100 + 2*time.Millisecond
}

// contender is a Lock or a TryLock under way.
type contender struct {
	mutex     *Mutex
	op        string                // opLock or opRLock; or opTryLock or opTryRLock, which do not wait
	ctx       context.Context       // of the caller, as the Observer has it
	contended atomic.Bool           // the lock was seen to be another's
	said      atomic.Pointer[error] // by the backend, or its client: the latest

	// own ends with ctx, or by cancel: with ErrClosed when the Client is closed, with ErrLost when the Mutex's own hold is lost.
	own    context.Context
	cancel context.CancelCauseFunc
}

func (m *Mutex) contender(ctx context.Context, op string) *contender {
	c := &contender{mutex: m, op: op, ctx: ctx}
	c.own, c.cancel = context.WithCancelCause(ctx)
	return c
}

// contend makes a call that takes a hold, by acquire.
func (m *Mutex) contend(ctx context.Context, op string, acquire func(*contender) (*Hold, error)) (h *Hold, err error) {
	err = m.client.observed(ctx, op, m.name, func(ctx context.Context) (r Result) {
		c := m.contender(ctx, op)
		defer c.cancel(nil)
		if h, r.Err = acquire(c); h != nil {
			r.Token = h.token
		}
		r.Contended = c.contended.Load()
		return r
	})
	return h, err
}

// acquire contends for the lock: until ctx ends, or once.
func (c *contender) acquire() (h *Hold, err error) {
	client := c.mutex.client
	if c.mutex.invalid != nil {
		return nil, c.mutex.invalid
	}
	if c.ctx.Err() != nil {
		return nil, interrupted(c.ctx, nil)
	}
	if err := c.waitsForItself(); err != nil {
		return nil, err
	}
	if err := client.enter(c); err != nil {
		return nil, err
	}
	defer client.leave(c)
	if _, ok := client.driver.(driver.Queuer); ok && c.waits() {
		h, err = c.queue()
	} else {
		h, err = c.poll()
	}
	if err == nil {
		h.observeHeld(c.ctx)
	}
	return h, err
}

// over returns why the contention has ended, and nil if it has not.
func (c *contender) over() error {
	why := context.Cause(c.own)
	if c.ctx.Err() == nil {
		return why
	}
	var said error
	if p := c.said.Load(); p != nil {
		said = *p
	}
	return interrupted(c.ctx, said)
}

// answered notes what the backend has said, or how its client has failed.
func (c *contender) answered(err error) {
	c.said.Store(&err)
	if errors.Is(err, ErrHeld) {
		c.contended.Store(true)
	}
}

// poll attempts again and again, with a pause that grows, and differs from waiter to waiter. A TryLock attempts once.
func (c *contender) poll() (*Hold, error) {
	var (
		set      = c.mutex.settings
		answered time.Time // when the backend last said that the lock is another's
		pause    = set.backoffMin
	)
	for {
		h, err := c.attempt(clock.Now())
		if err == nil {
			return h, nil
		}
		if over := c.over(); over != nil {
			return nil, over
		}
		switch {
		case !c.waits():
			return nil, err
		case errors.Is(err, ErrHeld), errors.Is(err, errLate):
			answered = clock.Now()
		case clock.Since(answered) > set.ttl/2:
			return nil, err // a waiter rides out a short outage, and no other
		}
		if clock.Sleep(c.own, pause/2+rand.N(pause/2+1)) != nil {
			return nil, c.over()
		}
		pause = min(2*pause, set.backoffMax)
	}
}

// attempt tries once. It takes half a TTL at most.
func (c *contender) attempt(sent time.Time) (*Hold, error) {
	ctx, cancel := within(c.own, c.mutex.settings.ttl/2)
	defer cancel()
	lease, err := c.ask(ctx)
	h, err := c.admit(lease, sent, ownError(ctx, err))
	if err != nil && (c.own.Err() == nil || !errors.Is(err, errNoAnswer)) {
		c.answered(err)
	}
	return h, err
}

// queue waits in the backend's own queue.
func (c *contender) queue() (*Hold, error) {
	lease, err := c.askQueued()
	h, err := c.admit(lease, time.Time{}, err) // the request that was granted was sent at some time of the wait
	for errors.Is(err, errLate) && clock.Sleep(c.own, c.mutex.settings.backoffMin) == nil {
		c.answered(err)
		lease, err = c.askQueued()
		h, err = c.admit(lease, time.Time{}, err)
	}
	if err == nil {
		return h, nil
	}
	if c.said.Load() == nil && err != c.own.Err() { //nolint:errorlint // one that wraps it has more to say
		c.answered(err)
	}
	if over := c.over(); over != nil {
		return nil, over
	}
	return nil, err
}

// within returns a context that ends with ctx, or after timeout.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, errNoAnswer)
}

// ownError returns err, unless it is merely that ctx, a request's own, has ended: the user's has not.
func ownError(ctx context.Context, err error) error {
	if err != nil && err == ctx.Err() { //nolint:errorlint // one that wraps it has more to say
		return errNoAnswer
	}
	return err
}

// admit makes a hold of a lease that was asked for at sent (zero: the lease alone knows). If the request failed, or less than half a TTL is
// left, it gives back what may have been taken.
func (c *contender) admit(lease driver.Lease, sent time.Time, err error) (*Hold, error) {
	m := c.mutex
	if lease == nil && err == nil {
		err = errors.New("the Driver returned neither a Lease nor an error")
	}
	if lease == nil {
		return nil, err
	}
	h := &Hold{lockID: m.lockID, lease: lease, ttl: m.settings.ttl, renewed: m.settings.renew, shared: c.shares(), place: -1}
	if err == nil {
		err = h.begin(sent)
	}
	if err != nil {
		m.client.spawn(h.giveBack)
		return nil, err
	}
	if n, ok := lease.(driver.LossNotifier); ok {
		n.NotifyLost(func() { h.lose(CauseRevoked) })
	}
	m.client.logWarnings()
	return h, nil
}

// remaining returns how long a hold lasts from now on a lease that was granted or extended by a request that was sent at sent. It is
// dated if that is less than the request would give, as on a session that several holds share: to ask again at once
// brings little.
func remaining(lease driver.Lease, ttl time.Duration, sent, now time.Time) (left time.Duration, dated bool) {
	left = ttl
	if !sent.IsZero() {
		left -= now.Sub(sent)
	}
	if validity := lease.Validity(); validity < left {
		left, dated = validity, left-validity > drift(ttl)
	}
	return left - drift(ttl), dated
}
