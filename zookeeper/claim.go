package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/sessions"
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

// Ask enqueues the claim, unless it is in the queue, and looks for its predecessor (queue.go). A
// waiter is woken when the predecessor's node is gone. If the session has ended, or our node was
// removed, Ask enqueues once more, at the end of the queue.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	if err := c.of.CheckTTL(c.TTL); err != nil {
		return 0, err
	}
	for range 2 { // the session may have ended unnoticed
		if next, err = c.ask(ctx); !isAny(err, errSessionEnded, errRemoved) {
			break
		}
	}
	return next, err
}

func (c *claim) ask(ctx context.Context) (next time.Duration, err error) {
	if c.lease != nil && c.lease.state().leaving() { // a deletion in flight may still arrive
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
	before, err := l.predecessor(ctx)
	for err == nil && before != "" {
		if c.Wake == nil { // another has come first, after refuseHeld has read the queue
			return 0, cmp.Or(c.leave(ctx), heldBy(l.state().holder))
		}
		var gone bool
		if gone, err = l.await(ctx, l.parent+"/"+before, c.Wake); err == nil && !gone {
			return sessions.PollInterval(c.TTL), heldBy(l.state().holder)
		}
		if err == nil {
			before, err = l.readPredecessor(ctx)
		}
	}
	if err == nil {
		err = l.confirmGrant(ctx)
	}
	switch {
	case isAny(err, errRemoved, errNumbered):
		err = cmp.Or(c.leave(ctx), err)
	case errors.Is(err, errSessionEnded):
		c.lease = nil // the node is removed with its session
	}
	return 0, err
}

// leave leaves a queue in which nothing was granted. If it fails, the next Ask or Release tries again.
func (c *claim) leave(ctx context.Context) error {
	if err := c.lease.release(ctx); err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	c.lease = nil
	return nil
}

// join gives c a lease on the session for its TTL, without a node yet. A claim that does not wait
// gets none if the lock is held.
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
		// It was not used for a while, and is as good as new if a quorum still knows it.
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

// Token implements driver.Claim.
func (c *claim) Token() uint64 { return c.lease.state().token }

// Validity implements driver.Claim.
func (c *claim) Validity() time.Duration {
	if c.lease == nil {
		return 0
	}
	return c.lease.session.Left()
}

// Release implements driver.Claim.
func (c *claim) Release(ctx context.Context) error {
	if c.lease == nil {
		return nil
	}
	return c.lease.release(ctx)
}

// NotifyLost implements driver.LossNotifier.
func (c *claim) NotifyLost(f func()) { c.lease.session.Notify(c.lease, f) }

// NotifyWait implements driver.WaitNotifier, by one read of the queue, which leaves a watch.
func (c *claim) NotifyWait(ctx context.Context, wake func()) (waits bool, next time.Duration, err error) {
	l := c.lease
	s, a := l.session, &awaiter{}
	context.AfterFunc(ctx, func() { s.watches.forget(a) })
	w := s.watches.join(a, l.parent, wake)
	children, err := call(ctx, s, reads, func(conn *zk.Conn) (children []string, err error) {
		if w == nil {
			children, _, err = conn.Children(l.parent)
			return children, err
		}
		if children, _, _, err = conn.ChildrenW(l.parent); err == nil {
			s.watches.mu.Lock()
			w.set = true
			s.watches.mu.Unlock()
		}
		return children, err
	})
	if err != nil {
		return false, 0, err
	}
	queue := inQueue(children)
	slices.SortFunc(queue, compare)
	return len(queue) > len(sessions.Holders(queue)), c.TTL, nil
}

// Leave implements driver.Leaver: the node is to stay until the session expires.
func (c *claim) Leave() { c.lease.left.Store(true) }

// Downgrade implements driver.Downgrader. A share is watched like any other: those who wait for the
// node are woken because it is gone.
func (c *claim) Downgrade(ctx context.Context) error { return c.lease.downgrade(ctx) }

// Extend implements driver.Claim.
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	return c.of.ExtendAll(ctx, []driver.Claim{c}, ttl)[0]
}

// ExtendAll makes a quorum write that checks whether the nodes of the leases exist. If they do, their
// session exists, and the write confirms its heartbeats (heartbeat.go). The holds last one TTL from
// the latest confirmed one, so they may end up to heartbeats.delay earlier than one TTL from now.
func (d *backend) ExtendAll(ctx context.Context, leases []driver.Claim, _ time.Duration) []error {
	errs, all := make([]error, len(leases)), make([]*lease, len(leases))
	for i, l := range leases {
		if all[i] = l.(*claim).lease; all[i].lost() {
			errs[i] = driver.ErrLost
		}
	}
	at := 0
	for some := range slices.Chunk(all, nodesPerCheck) {
		extend(ctx, some, errs[at:])
		at += len(some)
	}
	return errs
}

// extend extends those of the leases that have no error yet. They have one TTL, and so one session.
// A check of several nodes fails as a whole, and names the first that is missing.
func extend(ctx context.Context, leases []*lease, errs []error) {
	for {
		var nodes []string
		var at []int
		for i, l := range leases {
			if errs[i] == nil {
				nodes, at = append(nodes, l.state().path), append(at, i)
			}
		}
		if len(nodes) == 0 {
			return
		}
		s := leases[at[0]].session
		asked := clock.Now()
		responses, err := s.check(ctx, nodes...)
		if i := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return errors.Is(r.Error, zk.ErrNoNode) }); i >= 0 {
			if moved, err := leases[at[i]].moved(ctx, nodes[i]); !moved {
				errs[at[i]] = cmp.Or(asLost(err), driver.ErrLost)
			}
			continue
		}
		if err == nil {
			err = s.refreshExtended(ctx, nodes[0], clock.Since(asked))
		}
		for _, i := range at {
			errs[i] = asLost(err)
		}
		return
	}
}

// refreshExtended refreshes a session after a check that took so long, if no more than half a TTL is
// left, because its latest heartbeats are old or not confirmable yet, or if it is new and only its
// creation is confirmed. Over a link that is slow the refresh would use up what is left: there the
// next Extend comes sooner.
func (s *session) refreshExtended(ctx context.Context, node string, took time.Duration) error {
	s.mu.Lock()
	first, isNew, delay := s.heartbeats.first, !s.heartbeats.confirmed.After(s.heartbeats.first), s.heartbeats.delay
	s.mu.Unlock()
	if left := s.Left(); (isNew || left <= s.TTL/2) && 4*took+delay < left {
		_ = s.refresh(ctx, node, first) // if it fails, the holds have been extended all the same
	}
	if s.Ended() {
		return errSessionEnded
	}
	return nil
}
