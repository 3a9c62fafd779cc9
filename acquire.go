package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// errNoAnswer ends an attempt that the backend has not answered.
var errNoAnswer = errors.New("the backend has not answered in time")

// drift is the allowance for clocks that run at different speeds: TTL/100 + 2 ms, as in the Redis
// documentation's description of Redlock.
func drift(ttl time.Duration) time.Duration {
	return ttl/100 + 2*time.Millisecond
}

// acquire contends for the lock as one contender: until ctx ends if wait is set, else once.
func (m *Mutex) acquire(ctx context.Context, wait bool) (*Hold, error) {
	if m.invalid != nil {
		return nil, m.invalid
	}
	if ctx.Err() != nil {
		return nil, interrupted(ctx, nil)
	}
	c := m.client
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	queuer, queues := c.driver.(Queuer)
	switch {
	case !wait:
		h, err := m.attempt(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, interrupted(ctx, heard(err))
		}
		return h, err
	case queues:
		return m.queue(ctx, queuer)
	default:
		return m.poll(ctx)
	}
}

// poll attempts again and again, with a pause that grows, and differs from waiter to waiter.
func (m *Mutex) poll(ctx context.Context) (*Hold, error) {
	var (
		last     error     // the latest that the backend said, or failed with
		answered time.Time // when it last said that the lock is another's
		pause    = m.settings.backoffMin
	)
	for {
		h, err := m.attempt(ctx)
		switch {
		case err == nil || errors.Is(err, ErrClosed):
			return h, err
		case ctx.Err() != nil:
			if said := heard(err); said != nil {
				last = said
			}
			return nil, interrupted(ctx, last)
		case errors.Is(err, ErrHeld):
			answered = clock.Now()
		case answered.IsZero() || clock.Since(answered) > m.settings.ttl/2:
			return nil, err // a waiter rides out a short outage, and no other
		}
		last = err
		if err := m.client.sleep(ctx, pause/2+rand.N(pause/2+1)); err != nil {
			if errors.Is(err, ErrClosed) {
				return nil, err
			}
			return nil, interrupted(ctx, last)
		}
		pause = min(2*pause, m.settings.backoffMax)
	}
}

// sleep waits for d, for the end of ctx or for Close.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closing:
		return ErrClosed
	}
}

// queue waits in the backend's own queue.
func (m *Mutex) queue(ctx context.Context, q Queuer) (*Hold, error) {
	var last atomic.Pointer[error]
	h, err := m.call(ctx, 0, func(ctx context.Context, req Request) (Lease, error) {
		return q.AcquireQueued(ctx, req, func(err error) { last.Store(&err) })
	})
	if err == nil || ctx.Err() == nil {
		return h, err
	}
	if said := last.Load(); said != nil {
		return nil, interrupted(ctx, *said)
	}
	return nil, interrupted(ctx, heard(err))
}

// attempt tries once, for at most half a TTL.
func (m *Mutex) attempt(ctx context.Context) (*Hold, error) {
	return m.call(ctx, m.settings.ttl/2, m.client.driver.Acquire)
}

// detached is ctx without its end, but with a timeout if that is not 0.
func detached(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(context.WithoutCancel(ctx))
	}
	return context.WithTimeoutCause(context.WithoutCancel(ctx), timeout, errNoAnswer)
}

// ownError is err, unless it merely says that ctx, a request's own, has ended: the user's has not.
func ownError(ctx context.Context, err error) error {
	if err != nil && err == ctx.Err() { //nolint:errorlint // one that wraps it has more to say
		return errNoAnswer
	}
	return err
}

// errAbandoned is what call returns when ctx has ended before the answer came.
var errAbandoned = errors.New("abandoned")

// heard is err, if the backend had a part in it.
func heard(err error) error {
	if errors.Is(err, errAbandoned) {
		return nil
	}
	return err
}

// call has acquire make a request in a goroutine, so that ctx bounds it whether or not the client
// library heeds ctx. Whatever it may have taken is the caller's hold, or is released again.
// A timeout of 0 is none: the request waits in a queue.
func (m *Mutex) call(
	ctx context.Context, timeout time.Duration, acquire func(context.Context, Request) (Lease, error),
) (*Hold, error) {
	c := m.client
	req := Request{Name: m.qualified, Metadata: m.settings.metadata, TTL: m.settings.ttl}
	// The request does not share ctx's deadline: a client library that closes its connection
	// at a deadline would turn the end of ctx into a failure of the backend.
	rctx, cancel := detached(ctx, timeout)
	defer cancel()

	type answer struct {
		lease Lease
		err   error
	}
	answers := make(chan answer) // unbuffered: an answer reaches the caller, or is seen to have missed it
	sent := clock.Now()
	c.spawn(func() {
		lease, err := acquire(rctx, req)
		select {
		case answers <- answer{lease, err}:
		case <-rctx.Done():
			c.cleanUp(lease, req.TTL)
		}
	})
	select {
	case a := <-answers:
		if a.err != nil {
			if a.lease != nil {
				c.spawn(func() { c.cleanUp(a.lease, req.TTL) })
			}
			return nil, ownError(rctx, a.err)
		}
		if timeout == 0 {
			sent = time.Time{} // the request that granted it was sent at some time of the wait
		}
		return m.admit(a.lease, sent)
	case <-ctx.Done():
		return nil, errAbandoned
	case <-c.closing:
		return nil, ErrClosed
	case <-rctx.Done():
		return nil, errNoAnswer
	}
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
		token: c.config.tokenBase + lease.Token(), lost: make(chan struct{}), place: -1,
	}
	now := clock.Now()
	left := remaining(lease, ttl, sent, now)
	var err error
	switch {
	case lease.Token() == 0:
		err = errors.New("the Driver granted the fencing token 0")
	case left < ttl/2:
		err = fmt.Errorf("granted too late: %v of the TTL of %v left, which is less than half", left, ttl)
	case !h.start(now, left):
		err = ErrClosed
	}
	if err != nil {
		c.spawn(func() { c.cleanUp(lease, ttl) })
		return nil, err
	}
	if n, ok := lease.(LossNotifier); ok {
		n.NotifyLost(func() { h.lose("the backend says that it has ended") })
	}
	return h, nil
}

// remaining is how long a hold lasts from now on a lease that was granted or extended by a
// request that was sent at sent.
func remaining(lease Lease, ttl time.Duration, sent, now time.Time) time.Duration {
	left := min(lease.Validity(), ttl)
	if !sent.IsZero() {
		left = min(left, ttl-now.Sub(sent))
	}
	return left - drift(ttl)
}

// cleanUp releases what an attempt may have taken, until the backend has answered or the lease
// must have lapsed.
func (c *Client) cleanUp(lease Lease, ttl time.Duration) {
	if lease != nil {
		_ = c.release(lease, ttl, clock.Now().Add(ttl), nil)
	}
}

// foregroundTries is how many failed releases an Unlock waits for.
const foregroundTries = 3

// release gives a lease back, and tries again until the backend has answered, deadline has come and
// the lease is not known to go on, or the Client is closed. The outcome is sent to told, if that is not nil, as soon as it is known or
// a few tries have failed. It returns the outcome of the last try.
func (c *Client) release(lease Lease, ttl time.Duration, deadline time.Time, told chan<- error) error {
	pause := min(max(ttl/100, time.Millisecond), 50*time.Millisecond)
	for try := 1; ; try++ {
		patience := ttl / 4
		if left := deadline.Sub(clock.Now()); left > 0 {
			patience = min(patience, left)
		}
		ctx, cancel := context.WithTimeout(c.background, patience)
		err := ownError(ctx, lease.Release(ctx))
		cancel()
		answered := err == nil || errors.Is(err, ErrLost)
		wait := pause/2 + rand.N(pause)
		left := deadline.Sub(clock.Now())
		late := left <= wait && lease.Validity() <= max(left, 0)+drift(ttl)
		over := answered || late || c.background.Err() != nil
		if told != nil && (over || try == foregroundTries) {
			told <- err
			told = nil
		}
		if over {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-c.background.Done():
			t.Stop()
		}
		pause = min(2*pause, time.Second)
	}
}
