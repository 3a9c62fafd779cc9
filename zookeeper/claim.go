package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker/driver"
)

// claim implements [driver.Claim], [driver.Downgrader], [driver.LossNotifier],
// [driver.WaitNotifier] and [driver.Leaver].
type claim struct {
	driver.Request

	of    *backend
	lease *lease // its place in the queue; nil: it has none
}

var (
	_ driver.Downgrader   = (*claim)(nil)
	_ driver.LossNotifier = (*claim)(nil)
	_ driver.WaitNotifier = (*claim)(nil)
	_ driver.Leaver       = (*claim)(nil)
)

// Claim implements driver.Driver.
func (d *backend) Claim(req driver.Request) driver.Claim { return &claim{Request: req, of: d} }

// Ask makes our node, unless it is there, and looks whether it is the first of the queue; or, for a
// share, whether no writer's is before it. Who waits is woken when the node before its own goes. If
// the session has ended, or somebody has removed our node, it begins again at the end of the queue.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	if err := c.of.CheckTTL(c.TTL); err != nil {
		return 0, err
	}
	for range 2 { // the session may have ended when nobody looked
		if next, err = c.ask(ctx); !isAny(err, errSessionEnded, errRemoved) {
			break
		}
	}
	return next, err
}

func (c *claim) ask(ctx context.Context) (next time.Duration, err error) {
	if c.lease != nil && c.lease.state().leaving() { // by a deletion that may come at any time
		if err := c.leave(ctx); err != nil {
			return 0, err
		}
	}
	if c.lease == nil {
		if err := c.join(ctx); err != nil {
			return 0, err
		}
	}
	l := c.lease
	before, err := l.stand(ctx)
	for err == nil && before != "" {
		if c.Wake == nil { // it has come second, between its look and its node
			return 0, cmp.Or(c.leave(ctx), heldBy(l.state().holder))
		}
		var gone bool
		if gone, err = l.await(ctx, l.parent+"/"+before, c.Wake); err == nil && !gone {
			return lookAgain(c.TTL), heldBy(l.state().holder)
		}
		if err == nil {
			before, err = l.look(ctx)
		}
	}
	if err == nil {
		err = l.confirm(ctx)
	}
	switch {
	case isAny(err, errRemoved, errNumbered):
		err = cmp.Or(c.leave(ctx), err)
	case errors.Is(err, errSessionEnded):
		c.lease = nil // the node goes with its session
	}
	return 0, err
}

// leave leaves a queue in which nothing was granted. If it fails the next Ask or Release does.
func (c *claim) leave(ctx context.Context) error {
	if err := c.lease.release(ctx); err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	c.lease = nil
	return nil
}

// join gives c a lease on the session for its TTL. A claim that does not wait gets none if the lock
// is held.
func (c *claim) join(ctx context.Context) error {
	s, err := c.of.session(c.TTL, false)
	if err == nil {
		err = s.started(ctx)
	}
	switch {
	case err != nil:
		return err
	case s.TTL != c.TTL:
		return notGranted(c.TTL, s.TTL)
	}
	l := newLease(s, c.Request)
	for !s.Join(l) {
		if s.Ended() {
			return errSessionEnded
		}
		// Nobody has used it, and it is as good as new if a quorum still knows it.
		if err := s.refresh(ctx, "", time.Time{}); err != nil {
			return err
		}
	}
	if c.Wake == nil {
		if err := l.refuseHeld(ctx, l.shared); err != nil {
			_ = l.finish(false)
			return err
		}
	}
	c.lease = l
	return nil
}

// lookAgain is how soon a waiter looks that nobody wakes: an event may be lost.
func lookAgain(ttl time.Duration) time.Duration {
	d := min(max(ttl/3, time.Second), 5*time.Second)
	return d + rand.N(d/4)
}

// Token implements driver.Lease.
func (c *claim) Token() uint64 {
	if c.lease == nil {
		return 0
	}
	return c.lease.state().token
}

// Validity implements driver.Lease.
func (c *claim) Validity() time.Duration {
	if c.lease == nil {
		return 0
	}
	return c.lease.session.Left()
}

// Extend implements driver.Lease.
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	return c.of.ExtendAll(ctx, []driver.Lease{c}, ttl)[0]
}

// Release implements driver.Lease.
func (c *claim) Release(ctx context.Context) error {
	if c.lease == nil {
		return nil
	}
	return c.lease.release(ctx)
}

// NotifyLost implements driver.LossNotifier.
func (c *claim) NotifyLost(f func()) { c.lease.session.Notify(c.lease, f) }

// Leave implements driver.Leaver.
func (c *claim) Leave() { c.lease.left.Store(true) }

// Downgrade implements driver.Downgrader. A share is watched like any other: those who wait for the
// node hear that it is gone.
func (c *claim) Downgrade(ctx context.Context) error {
	if c.lease == nil {
		return driver.ErrLost
	}
	return c.lease.downgrade(ctx)
}
