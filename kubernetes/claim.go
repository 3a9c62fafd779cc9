package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/sessions"
)

// claim implements driver.Claim.
type claim struct {
	driver.Request

	of       *backend
	owner    string
	doubtful bool   // the outcome of a take is unknown, and it may arrive yet
	refusal  error  // that of a take which the API server refused as outdated
	base     uint64 // the version that either expects

	until clock.Deadline

	mu   sync.Mutex
	held object // as of the latest answer; zero before the grant
}

// Claim implements driver.Driver.
func (d *backend) Claim(req driver.Request) driver.Claim {
	return &claim{Request: req, of: d, owner: sessions.NewOwner()}
}

// Ask takes the lock if it is free by what this Driver knows, or else looks first.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	if c.Shared {
		return 0, fmt.Errorf("%w: Kubernetes has no read-write locks", driver.ErrUnsupported)
	}
	if err := c.of.CheckTTL(c.TTL); err != nil {
		return 0, err
	}
	s, known := c.of.views.recall(c.Name, c.Wake != nil)
	if known && s.version != c.base {
		c.doubtful = false
	}
	for try := 0; ; try++ {
		if !known || c.doubtful {
			if s, err = c.look(ctx); err != nil {
				return 0, err
			}
			if refusal := c.refusal; refusal != nil && s.version == c.base {
				c.refusal = nil
				return 0, refusal // nobody has changed the Lease: a webhook, or a proxy, refuses
			}
		}
		again := false
		switch {
		case s.owner == c.owner: // the reply to a take was lost
			err = c.renew(ctx, s.object, c.TTL)
			again = errors.Is(err, driver.ErrLost)
		case !s.expired(time.Now()):
			return c.of.enter(c, s), &driver.HeldError{Holder: s.holder()}
		default:
			err = c.take(ctx, s.object)
			again = changed(err)
		}
		if err == nil {
			c.of.leave(c)
		}
		if !again {
			return 0, err
		}
		if next, waits := c.of.outrun(c); waits {
			return next, driver.ErrHeld
		}
		known = false
		pause(ctx, try)
	}
}

// pause keeps requests that are refused again and again from following one another at once.
func pause(ctx context.Context, try int) {
	_ = clock.Sleep(ctx, time.Duration(min(try, 25))*leastSpread)
}

// look makes a Lease where there is none. That holds nothing, so that it may arrive late.
func (c *claim) look(ctx context.Context) (s sighting, err error) {
	for try := 0; ; try++ {
		s, err = c.of.read(ctx, c.Name)
		if apierrors.IsNotFound(err) {
			if s, err = c.of.request(ctx, http.MethodPost, c.Name, free(c.of.api.namespace, c.Name)); err == nil {
				c.of.sweepIfDue()
			}
		}
		if !apierrors.IsAlreadyExists(err) || try == 2 {
			c.doubtful = c.doubtful && (err != nil || s.version == c.base)
			return s, err
		}
	}
}

// take takes the lock, if the Lease is what it was: a hold that was renewed since is not expired. A
// refusal as outdated is no certain one: if the network repeats a take, it is the reply to the second.
func (c *claim) take(ctx context.Context, o object) error {
	sent := clock.Now()
	got, err := c.of.request(ctx, http.MethodPut, c.Name, o.taken(c.owner, c.Request, time.Now()))
	c.refusal = nil
	if err != nil {
		c.doubtful, c.base = c.doubtful || !didNothing(err), o.version
		if changed(err) {
			c.refusal = err
		}
		return err
	}
	c.doubtful = false
	c.lasts(got.object, sent.Add(c.TTL))
	return nil
}

// renew has the hold last ttl from now.
func (c *claim) renew(ctx context.Context, o object, ttl time.Duration) error {
	sent := clock.Now()
	got, err := c.change(ctx, o, func(o object) *coordinationv1.Lease { return o.renewed(ttl, time.Now()) })
	if err == nil {
		c.lasts(got, sent.Add(ttl))
	}
	return err
}

// change updates the Lease, which is o, and does so again if another has changed it, as long as the
// hold is there. With ErrLost it returns what is there instead.
func (c *claim) change(ctx context.Context, o object, to func(object) *coordinationv1.Lease) (object, error) {
	for try := 0; ; try++ {
		s, refusal := c.of.request(ctx, http.MethodPut, c.Name, to(o))
		if !changed(refusal) {
			return s.object, refusal
		}
		s, err := c.of.read(ctx, c.Name)
		switch {
		case apierrors.IsNotFound(err):
			return object{}, driver.ErrLost
		case err != nil:
			return object{}, err
		case s.version == o.version: // nobody has changed it: a webhook, or a proxy, refuses
			return object{}, refusal
		case s.owner != c.owner:
			return s.object, driver.ErrLost
		}
		o = s.object
		pause(ctx, try)
	}
}

func (c *claim) lasts(o object, until time.Time) {
	c.until.Extend(until)
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.version > c.held.version {
		c.held = o
	}
}

// latest returns the Lease as of the latest answer.
func (c *claim) latest() object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// Token implements driver.Claim.
func (c *claim) Token() uint64 { return c.latest().token }

// Validity implements driver.Claim.
func (c *claim) Validity() time.Duration { return c.until.Left() }

// Extend implements driver.Claim.
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	if c.Validity() <= 0 {
		return driver.ErrLost
	}
	return c.renew(ctx, c.latest(), ttl)
}

// Release frees the lock. If a take may still arrive, it changes the Lease, so that the take finds
// another version than it expects.
func (c *claim) Release(ctx context.Context) error {
	c.of.leave(c)
	o := c.latest()
	if o.owner == "" {
		if !c.doubtful {
			return nil
		}
		s, err := c.of.read(ctx, c.Name)
		switch {
		case apierrors.IsNotFound(err):
			return nil // a take finds another uid
		case err != nil:
			return err
		case s.owner != c.owner && s.version != c.base:
			return nil // it finds another version
		}
		o = s.object
	}
	there, err := c.change(ctx, o, func(o object) *coordinationv1.Lease { return o.freed(c.owner) })
	if errors.Is(err, driver.ErrLost) && there.lease != nil && there.lease.Annotations[releasedKey] == c.owner {
		return nil // by an earlier request, whose reply was lost
	}
	return err
}
