package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
)

// errNoAnswer ends an attempt that the backend has not answered.
var errNoAnswer error = noanswer.Error("the backend has not answered in time")

// drift is the allowance for clocks that run at different speeds: TTL/100 + 2 ms, as in the Redis
// documentation's description of Redlock.
func drift(ttl time.Duration) time.Duration {
	return ttl/100 + 2*time.Millisecond
}

// contender is one Lock, or one attempt to.
type contender struct {
	*Mutex
	op        string          // opLock, or opTryLock, which does not wait
	ctx       context.Context // of the caller, as the Observer has it
	began     time.Time
	contended atomic.Bool // the lock was seen to be another's

	// own ends with ctx, or by end: with ErrClosed when the Client is closed, with ErrLost when the Mutex's own hold is lost.
	own context.Context
	end context.CancelCauseFunc

	said   atomic.Pointer[error] // by a backend in whose queue it is: the latest
	places [2]int                // in the Client's list of contenders, and the Mutex's
}

// contender begins a call. Each needs one done.
func (m *Mutex) contender(ctx context.Context, op string) *contender {
	ctx, began := m.client.start(ctx, Call{op, m.name})
	return m.another(ctx, op, began)
}

// another is a contender in a call that has begun.
func (m *Mutex) another(ctx context.Context, op string, began time.Time) *contender {
	c := &contender{Mutex: m, op: op, ctx: ctx, began: began}
	c.own, c.end = context.WithCancelCause(ctx)
	return c
}

// contenders is a list of them: a set without hashing.
type contenders []*contender

// The lists that a contender is on.
const (
	ofClient = iota
	ofMutex
)

func (l *contenders) add(c *contender, list int) {
	c.places[list] = len(*l)
	*l = append(*l, c)
}

func (l *contenders) remove(c *contender, list int) {
	all, place := *l, c.places[list]
	last := all[len(all)-1]
	all[place], last.places[list] = last, place
	all[len(all)-1] = nil
	*l = all[:len(all)-1]
}

// done ends the call, and returns the error for its caller.
func (c *contender) done(h *Hold, err error) error {
	r := Result{Contended: c.contended.Load(), Err: err}
	if h != nil {
		r.Token = h.token
	}
	return c.client.done(c.ctx, Call{c.op, c.name}, c.began, r)
}

// acquire contends for the lock: until ctx ends, or once.
func (c *contender) acquire() (*Hold, error) {
	h, err := c.contend()
	if err == nil {
		h.tellHeld(c.ctx)
	}
	return h, err
}

func (c *contender) contend() (*Hold, error) {
	defer c.end(nil)
	if c.invalid != nil {
		return nil, c.invalid
	}
	if c.ctx.Err() != nil {
		return nil, interrupted(c.ctx, nil)
	}
	if err := c.client.enter(c); err != nil {
		return nil, err
	}
	defer c.client.leave(c)
	switch _, queues := c.client.driver.(driver.Queuer); {
	case c.op == opTryLock:
		return c.once()
	case queues:
		return c.queue()
	default:
		return c.poll()
	}
}

// over is why the contention has ended, if it has; last is the latest that the backend said.
func (c *contender) over(last error) error {
	why := context.Cause(c.own)
	if c.ctx.Err() != nil {
		return interrupted(c.ctx, last)
	}
	return why
}

// errAbandoned is what call and sleep return when the contention was over first.
var errAbandoned = errors.New("abandoned")

// latest is err, or last if the backend had no part in err.
func latest(err, last error) error {
	if errors.Is(err, errAbandoned) {
		return last
	}
	return err
}

func (c *contender) once() (*Hold, error) {
	h, err := c.attempt()
	if err == nil {
		return h, nil
	}
	if over := c.over(latest(err, nil)); over != nil {
		return nil, over
	}
	return nil, err
}

// attemptsApart is how many attempts could be made in the longest pause between two, if they take long: contenders whose
// attempts overlap, at a quorum of nodes, get nowhere.
const attemptsApart = 16

// poll attempts again and again, with a pause that grows, and differs from waiter to waiter.
func (c *contender) poll() (*Hold, error) {
	var (
		last     error     // the latest that the backend said, or failed with
		answered time.Time // when it last said that the lock is another's
		pause    = c.settings.backoffMin
	)
	for {
		began := clock.Now()
		h, err := c.attempt()
		if err == nil {
			return h, nil
		}
		took := clock.Since(began)
		last = latest(err, last)
		if over := c.over(last); over != nil {
			return nil, over
		}
		switch {
		case errors.Is(err, ErrHeld):
			answered = clock.Now()
		case clock.Since(answered) > c.settings.ttl/2:
			return nil, err // a waiter rides out a short outage, and no other
		}
		if err := c.sleep(pause/2 + rand.N(pause/2+1)); err != nil {
			return nil, c.over(last)
		}
		pause = min(2*pause, max(c.settings.backoffMax, min(attemptsApart*took, c.settings.ttl/10)))
	}
}

func (c *contender) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.own.Done():
		return errAbandoned
	}
}

// queue waits in the backend's own queue.
func (c *contender) queue() (*Hold, error) {
	h, err := c.call(c.own, (*contender).enqueue, time.Time{}) // the request that is granted is sent at some time of the wait
	if err == nil {
		return h, nil
	}
	last := latest(err, nil)
	if p := c.said.Load(); p != nil {
		last = *p
	}
	if over := c.over(last); over != nil {
		return nil, over
	}
	return nil, err
}

// attempt tries once, for at most half a TTL.
func (c *contender) attempt() (*Hold, error) {
	ctx, cancel := within(c.own, c.settings.ttl/2)
	defer cancel()
	h, err := c.call(ctx, (*contender).try, clock.Now())
	c.noteHeld(err)
	return h, err
}

// noteHeld notes it if err says that the lock is another's.
func (c *contender) noteHeld(err error) {
	if errors.Is(err, ErrHeld) {
		c.contended.Store(true)
	}
}

// acquiring is a method of the Driver.
type acquiring func(c *contender, ctx context.Context, req driver.Request) (driver.Lease, error)

func (c *contender) try(ctx context.Context, req driver.Request) (driver.Lease, error) {
	return c.client.driver.Acquire(ctx, req)
}

func (c *contender) enqueue(ctx context.Context, req driver.Request) (driver.Lease, error) {
	return c.client.driver.(driver.Queuer).AcquireQueued(ctx, req, c.answered)
}

func (c *contender) answered(err error) {
	c.said.Store(&err)
	c.noteHeld(err)
}

// within returns a context that ends with ctx, or after timeout.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, errNoAnswer)
}

// ownError returns err, unless it merely says that ctx, a request's own, has ended: the user's has not.
func ownError(ctx context.Context, err error) error {
	if err != nil && err == ctx.Err() { //nolint:errorlint // one that wraps it has more to say
		return errNoAnswer
	}
	return err
}

// call has the Driver make a request at sent (zero: the lease alone knows). What that took becomes a hold, or is released again.
func (c *contender) call(ctx context.Context, acquire acquiring, sent time.Time) (*Hold, error) {
	lease, err := acquire(c, ctx, driver.Request{Name: c.qualified, Metadata: c.settings.metadata, TTL: c.settings.ttl})
	if err == nil {
		return c.admit(lease, sent)
	}
	if lease != nil {
		c.client.spawn(func() { c.cleanUp(lease) })
	}
	if c.own.Err() != nil && err == ctx.Err() { //nolint:errorlint // one that wraps it has more to say
		return nil, errAbandoned
	}
	return nil, ownError(ctx, err)
}

// admit makes a hold of a lease that was asked for at sent (zero: the lease alone knows), or gives it
// back if less than half a TTL is left of it.
func (m *Mutex) admit(lease driver.Lease, sent time.Time) (*Hold, error) {
	c, ttl := m.client, m.settings.ttl
	if lease == nil {
		return nil, errors.New("the Driver returned neither a Lease nor an error")
	}
	h := &Hold{
		client: c, lease: lease, name: m.name, ttl: ttl, renewed: m.settings.renew,
		token: c.config.tokenBase + lease.Token(), place: -1,
	}
	now := clock.Now()
	left, dated := remaining(lease, ttl, sent, now)
	var err error
	switch {
	case lease.Token() == 0:
		err = errors.New("the Driver granted the fencing token 0")
	case left < ttl/2:
		err = fmt.Errorf("granted too late: %v of the TTL of %v left, which is less than half", left, ttl)
	case !h.start(now, left, dated):
		err = ErrClosed
	}
	if err != nil {
		c.spawn(func() { m.cleanUp(lease) })
		return nil, err
	}
	if n, ok := lease.(driver.LossNotifier); ok {
		n.NotifyLost(func() { h.lose(CauseRevoked) })
	}
	c.logWarnings()
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
