package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sessions"
)

// claim implements [driver.Claim], [driver.LossNotifier], [driver.WaitNotifier], [driver.Downgrader]
// and [driver.Leaver]. It has an entry in the queue of its name, and a new one if that has ended.
type claim struct {
	driver.Request

	of    *backend
	entry *entry // nil: nothing was sent, or nothing is left of it. Ask sets it
}

// Claim implements driver.Driver.
func (d *backend) Claim(req driver.Request) driver.Claim { return &claim{Request: req, of: d} }

// Ask enqueues the claim, unless it is in the queue, and looks for its predecessor (entry.go). If its
// session has ended, or its key was removed, it enqueues once more, at the end of the queue. A waiter
// also polls: a watch may hang, at a server that does.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	for range 2 {
		if err := c.join(ctx); err != nil {
			return 0, err
		}
		e, ahead := c.entry, ""
		switch {
		case e.created.Load() == 0:
			ahead, err = e.enqueue(ctx, c.Wake != nil)
		case !e.granted.Swap(false):
			ahead, err = e.readPredecessor(ctx, e.ahead)
		}
		if err == nil && ahead == "" && e.session.Left() < c.TTL/5*3 {
			err = e.session.renew(ctx)
		}
		if err == nil && ahead != "" && c.Wake == nil {
			err = driver.ErrHeld
		}
		switch {
		case sessionEnded(err): // join makes another
		case errors.Is(err, rpctypes.ErrPermissionDenied) && !e.session.usurped(ctx):
			return 0, err
		case errors.Is(err, errRemoved), errors.Is(err, driver.ErrHeld), errors.Is(err, rpctypes.ErrPermissionDenied):
			if left := c.leave(ctx); left != nil || errors.Is(err, driver.ErrHeld) {
				return 0, cmp.Or(left, err)
			}
		case err != nil:
			return 0, err
		case ahead == "":
			e.session.watcher.remove(e)
			return 0, nil
		default:
			e.ahead = ahead
			e.session.watcher.await(e, ahead)
			return sessions.PollInterval(c.TTL), driver.ErrHeld
		}
	}
	return 0, err
}

// join gives the claim an entry on the session for its TTL, unless it has one.
func (c *claim) join(ctx context.Context) error {
	switch e := c.entry; {
	case e == nil:
	case e.session.Left() == 0: // its keys expire with it
		c.entry = nil
	case e.leaving(): // a release in flight may still remove the key
		if err := c.leave(ctx); err != nil {
			return err
		}
	}
	for c.entry == nil {
		s, err := c.of.sessions.Get(c.TTL, func() *session {
			prefix, _ := sessions.Split(c.Name)
			return newSession(c.of, c.TTL, prefix+":")
		})
		if err == nil {
			err = s.Wait(ctx)
		}
		if err != nil {
			return err
		}
		if e := (&entry{Request: c.Request, session: s}); s.Join(e) {
			id := s.owner()
			if c.Shared {
				id = readerMark + id
			}
			e.place = newPlace(c.Name, id)
			e.ahead, c.entry = e.key, e
		} else if s.Left() == 0 {
			s.End() // it was not confirmed in time
		}
	}
	return nil
}

// leave leaves a queue in which nothing was granted. If it fails, the next Ask or Release tries again.
func (c *claim) leave(ctx context.Context) error {
	if err := c.entry.release(ctx); err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	c.entry = nil
	return nil
}

// Token implements driver.Claim.
func (c *claim) Token() uint64 {
	return uint64(cmp.Or(c.entry.token.Load(), c.entry.created.Load()))
}

// Validity implements driver.Claim.
func (c *claim) Validity() time.Duration {
	if c.entry == nil {
		return 0
	}
	return c.entry.session.Left()
}

// NotifyLost implements driver.LossNotifier.
func (c *claim) NotifyLost(f func()) { c.entry.session.Notify(c.entry, f) }

// NotifyWait implements driver.WaitNotifier.
func (c *claim) NotifyWait(ctx context.Context, wake func()) (waits bool, next time.Duration, err error) {
	e := c.entry
	queue, revision, err := c.of.readQueue(ctx, e.folder)
	if err != nil || len(queue) > len(sessions.Holders(queue)) {
		return err == nil, 0, err
	}
	e.session.watcher.awaitComer(ctx, e, revision, wake)
	return false, c.TTL, nil
}

// Leave implements driver.Leaver.
func (c *claim) Leave() { c.entry.left.Store(true) }

// Extend implements driver.Claim.
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	return c.of.ExtendAll(ctx, []driver.Claim{c}, ttl)[0]
}

// Release implements driver.Claim.
func (c *claim) Release(ctx context.Context) error {
	if c.entry == nil {
		return nil
	}
	return c.entry.release(ctx)
}

// Downgrade implements driver.Downgrader: a transaction that makes the key a share's, which keeps
// its place and its token.
func (c *claim) Downgrade(ctx context.Context) error {
	e := c.entry
	if e.Shared {
		return nil
	}
	created := e.created.Load()
	hint := e.hintValue(formatToken(created), formatToken(created))
	resp, err := e.commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(e.key), "=", created)},
		[]clientv3.Op{e.putShare(ownRevision), e.putHint(hint)}, nil)
	switch {
	case err != nil:
		return asLost(err)
	case !resp.Succeeded:
		return driver.ErrLost
	default:
		e.settleAs(created, hint)
		return nil
	}
}

// asLost returns err for the holder of a lease.
func asLost(err error) error {
	if sessionEnded(err) {
		return fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	return err
}

// keysPerLook is how many keys are looked at in one request; a server allows 128 by default.
const keysPerLook = 100

// ExtendAll renews the session of the holds, and then reads their keys, in this order: a read before
// the renewal would not show that a key is there after it. The holds may be on two sessions, since one
// that is retired accepts no new ones.
func (d *backend) ExtendAll(ctx context.Context, leases []driver.Claim, _ time.Duration) []error {
	errs, renewed := make([]error, len(leases)), map[*session]error{}
	for i, l := range leases {
		s := l.(*claim).entry.session
		err, ok := renewed[s]
		if !ok {
			err = asLost(s.renew(ctx))
			renewed[s] = err
		}
		errs[i] = err
	}
	at := 0
	for some := range slices.Chunk(leases, keysPerLook) {
		d.verify(ctx, some, errs[at:])
		at += len(some)
	}
	return errs
}

// verify sets the errors of leases whose keys are not there.
func (d *backend) verify(ctx context.Context, leases []driver.Claim, errs []error) {
	if !slices.Contains(errs[:len(leases)], nil) {
		return
	}
	look := make([]clientv3.Op, len(leases))
	for i, l := range leases {
		look[i] = l.(*claim).entry.own()
	}
	resp, err := d.commit(ctx, nil, look, nil)
	for i, l := range leases {
		switch e := l.(*claim).entry; {
		case errs[i] != nil:
		case err != nil:
			errs[i] = err
		case !e.isKey(first(resp.Responses[i])):
			errs[i] = driver.ErrLost
		}
	}
}
