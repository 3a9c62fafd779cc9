package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/internal/callctx"
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

	// own ends with that, or when the Client is closed, with the cause ErrClosed, or the Mutex's own hold is lost, with ErrLost.
	own callctx.Context

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
	c.own.Begin(ctx)
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
	defer c.own.End(nil)
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
	switch _, queues := c.client.driver.(Queuer); {
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
	why := c.own.Cause()
	if c.ctx.Err() != nil {
		return interrupted(c.ctx, last)
	}
	return why
}

// errAbandoned is what call and sleep return when the contention was over before they were done.
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
	h, err := c.call(0, (*contender).enqueue)
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
	h, err := c.call(c.settings.ttl/2, (*contender).try)
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
type acquiring func(c *contender, ctx context.Context, req Request) (Lease, error)

func (c *contender) try(ctx context.Context, req Request) (Lease, error) {
	return c.client.driver.Acquire(ctx, req)
}

func (c *contender) enqueue(ctx context.Context, req Request) (Lease, error) {
	return c.client.driver.(Queuer).AcquireQueued(ctx, req, c.answered)
}

func (c *contender) answered(err error) {
	c.said.Store(&err)
	c.noteHeld(err)
}

// within is ctx with a timeout if that is not 0.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, errNoAnswer)
}

// ownError is err, unless it merely says that ctx, a request's own, has ended: the user's has not.
func ownError(ctx context.Context, err error) error {
	if err != nil && err == ctx.Err() { //nolint:errorlint // one that wraps it has more to say
		return errNoAnswer
	}
	return err
}

// leaving is how long a waiter that gives up is given to leave its queue, so that it is gone when
// Lock returns, where leaving takes no request.
const leaving = time.Millisecond

// call has acquire make a request in a goroutine, so that ctx bounds it whether or not the client
// library heeds ctx. Whatever it may have taken becomes a hold, or is released again.
// A timeout of 0 is none: the request waits in a queue.
func (c *contender) call(timeout time.Duration, acquire acquiring) (*Hold, error) {
	client, ttl := c.client, c.settings.ttl
	req := Request{Name: c.qualified, Metadata: c.settings.metadata, TTL: ttl}
	if client.heeded {
		return c.callHere(timeout, acquire, req)
	}
	// The request does not share ctx's deadline: a client library that closes its connection
	// at a deadline would turn the end of ctx into a failure of the backend.
	rctx, cancel := within(context.WithoutCancel(c.ctx), timeout)
	defer cancel()

	answers := make(chan answer) // unbuffered: an answer reaches the caller, or is seen to have missed it
	gone := make(chan struct{})
	sent := clock.Now()
	client.spawn(func() {
		lease, err := acquire(c, rctx, req)
		close(gone)
		select {
		case answers <- answer{lease, err}:
		case <-rctx.Done():
			c.cleanUp(lease)
		}
	})
	select {
	case a := <-answers:
		if timeout == 0 {
			sent = time.Time{} // the request that granted it was sent at some time of the wait
		}
		return c.take(rctx, a, sent)
	case <-c.own.Done():
	case <-rctx.Done():
		return nil, errNoAnswer
	}
	if timeout == 0 {
		cancel()
		leave(gone)
	}
	return nil, errAbandoned
}

// callHere is call for a Driver that heeds contexts: it needs no goroutine.
func (c *contender) callHere(timeout time.Duration, acquire acquiring, req Request) (*Hold, error) {
	var ctx context.Context = &c.own
	var sent time.Time // zero: the request that granted it was sent at some time of the wait
	if timeout != 0 {
		var cancel context.CancelFunc
		ctx, cancel = within(ctx, timeout)
		defer cancel()
		sent = clock.Now()
	}
	lease, err := acquire(c, ctx, req)
	h, err := c.take(ctx, answer{lease, err}, sent)
	if err == errNoAnswer && (timeout == 0 || context.Cause(ctx) != errNoAnswer) { //nolint:errorlint // neither is ever wrapped
		err = errAbandoned
	}
	return h, err
}

// leave waits for a moment until gone is closed.
func leave(gone <-chan struct{}) {
	moment := time.NewTimer(leaving)
	defer moment.Stop()
	select {
	case <-gone:
	case <-moment.C:
	}
}

// answer is what a Driver's acquiring method has returned.
type answer struct {
	lease Lease
	err   error
}

// take makes a hold of the answer to a request of rctx that was sent at sent.
func (c *contender) take(rctx context.Context, a answer, sent time.Time) (*Hold, error) {
	if a.err == nil {
		return c.admit(a.lease, sent)
	}
	if a.lease != nil {
		c.client.spawn(func() { c.cleanUp(a.lease) })
	}
	return nil, ownError(rctx, a.err)
}

// admit makes a hold of a lease that was asked for at sent (zero: the lease alone knows), or gives it
// back if less than half a TTL is left of it.
func (m *Mutex) admit(lease Lease, sent time.Time) (*Hold, error) {
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
	if n, ok := lease.(LossNotifier); ok {
		n.NotifyLost(func() { h.lose(Revoked) })
	}
	c.logWarnings()
	return h, nil
}

// remaining returns how long a hold lasts from now on a lease that was granted or extended by a request that was sent at sent. It is
// dated if that is less than the request would give, as on a session that several holds share: to ask again at once
// brings little.
func remaining(lease Lease, ttl time.Duration, sent, now time.Time) (left time.Duration, dated bool) {
	left = ttl
	if !sent.IsZero() {
		left -= now.Sub(sent)
	}
	if validity := lease.Validity(); validity < left {
		left, dated = validity, left-validity > drift(ttl)
	}
	return left - drift(ttl), dated
}
