package kubernetes

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/go-locker/locker/driver"
)

// claim implements driver.Claim.
type claim struct {
	driver.Request

	of    *Driver
	owner string

	waits    bool   // it has entered the view
	doubtful bool   // a take was not answered, and may arrive yet
	base     uint64 // the version that it expects

	mu    sync.Mutex
	held  object // as of the latest answer; zero before the grant
	until time.Time
}

// Claim implements driver.Driver.
func (d *Driver) Claim(req driver.Request) driver.Claim {
	owner := make([]byte, 16)
	_, _ = rand.Read(owner) // never fails
	return &claim{Request: req, of: d, owner: hex.EncodeToString(owner)}
}

// Ask takes the lock if it is free by what this Driver knows, or else looks first.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	if c.Shared {
		return 0, fmt.Errorf("%w: Kubernetes has no read-write locks", driver.ErrUnsupported)
	}
	if err := c.of.CheckTTL(c.TTL); err != nil {
		return 0, err
	}
	s, known := c.of.views.recall(c.Name)
	for known = known && !c.doubtful; ; known = false {
		if !known {
			if s, err = c.look(ctx); err != nil {
				return 0, err
			}
		}
		switch {
		case s.owner == c.owner: // the reply to a take was lost
			err = c.adopt(ctx, s.object)
		case !s.expired(time.Now()):
			return c.wait(s), &driver.HeldError{Holder: s.holder()}
		default:
			err = c.take(ctx, s.object)
		}
		if err == nil {
			c.of.leave(c)
		}
		if !changed(err) {
			return 0, err
		}
	}
}

// changed reports whether a request was refused because the Lease was not what it expected.
func changed(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// wait has c woken, if it is to wait, and returns for how long at most.
func (c *claim) wait(s sighting) time.Duration {
	if c.Wake == nil {
		return 0
	}
	c.waits = true
	return max(time.Until(c.of.enter(c, s)), time.Millisecond)
}

// look makes a Lease where there is none. That holds nothing, so that it may arrive late.
func (c *claim) look(ctx context.Context) (sighting, error) {
	d := c.of
	for {
		sent := time.Now()
		r, err := d.api.get(ctx, objectName(c.Name))
		if apierrors.IsNotFound(err) {
			if r, err = d.api.create(ctx, free(d.api.namespace, c.Name)); err == nil {
				d.sweepIfDue(c.Name)
			}
		}
		switch {
		case apierrors.IsAlreadyExists(err):
			continue
		case err != nil:
			return sighting{}, err
		}
		before, _ := d.views.recall(c.Name)
		s := d.views.observe(c.Name, r, sent)
		if c.waits && before.version != s.version {
			d.views.suspect(c.Name)
		}
		c.doubtful = c.doubtful && s.version == c.base
		return s, nil
	}
}

// take takes the lock, if the Lease is what it was. A hold that was renewed since is not expired.
func (c *claim) take(ctx context.Context, o object) error {
	sent := time.Now()
	r, err := c.of.api.update(ctx, o.taken(c.owner, c.Request, sent))
	if err != nil {
		c.doubtful, c.base = c.doubtful || !didNothing(err), o.version
		return err
	}
	c.doubtful = false
	c.lasts(r, sent, c.TTL)
	return nil
}

// adopt has the grant of a take whose reply was lost last for a TTL from now.
func (c *claim) adopt(ctx context.Context, o object) error {
	sent := time.Now()
	r, err := c.of.api.update(ctx, o.renewed(c.TTL, sent))
	if err == nil {
		c.lasts(r, sent, c.TTL)
	}
	return err
}

// lasts takes in the answer to a request that was sent at sent.
func (c *claim) lasts(r reply, sent time.Time, ttl time.Duration) {
	c.of.views.observe(c.Name, r, sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.version > c.held.version {
		c.held = r.object
	}
	if until := sent.Add(ttl); until.After(c.until) {
		c.until = until
	}
}

// latest returns the Lease as of the latest answer.
func (c *claim) latest() object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// Token implements driver.Lease.
func (c *claim) Token() uint64 { return c.latest().token }

// Validity implements driver.Lease.
func (c *claim) Validity() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.until)
}

// Extend implements driver.Lease.
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	for o := c.latest(); ; {
		if o.owner != c.owner || c.Validity() <= 0 {
			return driver.ErrLost
		}
		sent := time.Now()
		r, err := c.of.api.update(ctx, o.renewed(ttl, sent))
		switch {
		case err == nil:
			c.lasts(r, sent, ttl)
			return nil
		case !changed(err):
			return err
		}
		if o, err = c.reread(ctx); err != nil {
			return err
		}
	}
}

// reread returns the Lease, or one that is nobody's if there is none.
func (c *claim) reread(ctx context.Context) (object, error) {
	sent := time.Now()
	r, err := c.of.api.get(ctx, objectName(c.Name))
	switch {
	case apierrors.IsNotFound(err):
		c.of.views.removed(c.Name)
		return object{lease: &coordinationv1.Lease{}}, nil
	case err != nil:
		return object{}, err
	}
	c.of.views.observe(c.Name, r, sent)
	return r.object, nil
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
		var err error
		if o, err = c.reread(ctx); err != nil {
			return err
		}
	}
	for {
		switch {
		case o.releasedBy(c.owner):
			return nil
		case o.owner != c.owner && !(c.doubtful && o.version == c.base):
			return driver.ErrLost
		}
		sent := time.Now()
		r, err := c.of.api.update(ctx, o.freed(c.owner))
		switch {
		case err == nil:
			c.of.views.observe(c.Name, r, sent)
			return nil
		case !changed(err):
			return err
		}
		if o, err = c.reread(ctx); err != nil {
			return err
		}
	}
}
