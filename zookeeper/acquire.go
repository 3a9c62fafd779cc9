package zookeeper

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

// Acquire implements driver.Driver. A contender that is not the first leaves the queue before Acquire returns.
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	return d.try(ctx, req, taking{})
}

// taking is how a contender takes the lock.
type taking struct{ wait, shared bool }

func (d *Driver) try(ctx context.Context, req driver.Request, how taking) (driver.Lease, error) {
	o := d.outage(req.TTL, unheard)
	l, err := d.acquire(ctx, req, o, how)
	if last := o.Last(); last != nil && err != nil && err == ctx.Err() { //nolint:errorlint // one that wraps it has more to say
		err = last
	}
	return l, err
}

// AcquireQueued implements driver.Queuer. A waiter whose session has ended, or whose node somebody has removed, begins again at the end of the queue.
func (d *Driver) AcquireQueued(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error) {
	return d.acquire(ctx, req, d.outage(req.TTL, answered), taking{wait: true})
}

// acquire contends for the lock. A session may have ended when nobody looked: without waiting it begins again once.
func (d *Driver) acquire(ctx context.Context, req driver.Request, o *outage.Outage, how taking) (driver.Lease, error) {
	for again := false; ; again = true {
		l, err := d.contend(ctx, req, o)
		if err == nil {
			if how.shared {
				l.share()
			}
			err = l.take(ctx, o, how.wait)
		}
		switch over := !isAny(err, errSessionEnded, errRemoved) || again && !how.wait; {
		case over && l == nil:
			return nil, err
		case over:
			return l.outcome(err)
		case errors.Is(err, errRemoved):
			if err := o.Ask(ctx, l.leave); err != nil {
				return l, err
			}
		}
		// With a session that has ended the node goes, or the session sweeps it up.
		o.Answered(err)
		if how.wait {
			if err := clock.Sleep(ctx, outage.Pause(req.TTL)); err != nil {
				return nil, err
			}
		}
	}
}

// contend makes a contender that has no place yet.
func (d *Driver) contend(ctx context.Context, req driver.Request, o *outage.Outage) (l *lease, err error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	if s, ok := d.sessions.Find(d.key(req.TTL)); ok && s.Started() && s.TTL == req.TTL {
		if l, ok := s.join(req); ok {
			return l, nil
		}
	}
	err = o.Ask(ctx, func(ctx context.Context) (err error) {
		l, err = d.join(ctx, req)
		return err
	})
	return l, err
}

// outcome is what an acquiring method returns of a lease and the error of taking it.
func (l *lease) outcome(err error) (driver.Lease, error) {
	l.mu.Lock()
	nothing := err != nil && (l.finished || l.path == "" && l.making == nil)
	l.mu.Unlock()
	if nothing {
		_ = l.finish(false)
		return nil, err
	}
	return l, err
}

// take takes a place in the queue. If that is not the first, it waits until it is, or leaves the queue again with ErrHeld.
func (l *lease) take(ctx context.Context, o *outage.Outage, wait bool) error {
	if !wait {
		if err := l.refuseHeld(ctx, o); err != nil {
			return err
		}
	}
	before, err := l.enter(ctx, o)
	if err == nil && before != "" && !wait {
		_ = o.Ask(ctx, l.leave) // if it fails, the core goes on
		return l.heldBy()
	}
	for err == nil && before != "" {
		o.Answered(l.heldBy())
		var gone bool
		if gone, err = l.awaitDeparture(ctx, o, l.parent+"/"+before); gone {
			before, err = l.look(ctx, o)
		}
	}
	if err == nil && l.shared {
		err = l.agree(ctx, o)
	}
	if s := l.session; err != nil || s.Left() >= s.TTL*3/5 {
		return err
	}
	return o.Ask(ctx, func(ctx context.Context) error {
		err := l.session.refresh(ctx, l.at(), time.Time{})
		if errors.Is(err, zk.ErrNoNode) {
			return l.removed()
		}
		return err
	})
}

// refuseHeld returns the error of a lock that is another's before we make a node, which others would take for that of one who waits. The server may be
// behind its leader: that a lock is held counts when it has caught up.
func (l *lease) refuseHeld(ctx context.Context, o *outage.Outage) error {
	s := l.session
	for _, read := range []func(context.Context, kind, string) (view, error){s.view, s.latest} {
		var seen view
		err := o.Ask(ctx, func(ctx context.Context) (err error) {
			seen, err = read(ctx, reads, l.parent)
			return err
		})
		queue := inQueue(seen.children)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil
		case err != nil:
			return err
		case !slices.ContainsFunc(queue, func(c contender) bool { return !l.shared || !c.shared }):
			return nil
		}
		l.mu.Lock()
		l.holder = slices.MinFunc(queue, compare).name
		l.mu.Unlock()
	}
	return l.heldBy()
}

// leave takes us out of a queue in which we are not the first.
func (l *lease) leave(ctx context.Context) error {
	if err := l.Release(ctx); !errors.Is(err, driver.ErrLost) {
		return err
	}
	return nil
}

// enter makes our node, and returns the one before it, if there is one.
func (l *lease) enter(ctx context.Context, o *outage.Outage) (before string, err error) {
	first := make(chan view, 1)
	var seen view
	err = o.Ask(ctx, func(ctx context.Context) error {
		if err := l.comeIn(ctx, first); err != nil {
			return err
		}
		select {
		case seen = <-first:
		case <-ctx.Done(): // then it is read again
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if !l.session.lasts() {
		return "", errSessionEnded
	}
	if err := l.refuse(ctx, o); err != nil {
		return "", err
	}
	if before, ok := l.seen(seen); ok && l.session.lasts() {
		return before, nil
	}
	return l.look(ctx, o)
}

// comeIn makes our node, unless an earlier call has, and before that those above it that are missing.
func (l *lease) comeIn(ctx context.Context, first chan view) error {
	for {
		refusal, err := l.settle(ctx)
		switch {
		case err != nil || l.at() != "":
			return err
		case errors.Is(refusal, zk.ErrNoNode):
			err = l.session.makeParents(ctx, l.parent)
		default:
			err = refusal
		}
		if err == nil {
			err = l.vacant(ctx)
		}
		if err == nil {
			err = l.session.connected(ctx, writes)
		}
		if err == nil {
			err = l.create(first)
		}
		if err != nil {
			return err
		}
	}
}

// create sends the request that makes our node, and right behind it one that reads the queue, whose answer goes to first.
// The library has no way of sending both at once, but requests of a connection are answered in the order in which they
// came: nearly always the second one finds the node. Else it has to be read again.
func (l *lease) create(first chan view) error {
	s := l.session
	c := &creation{done: make(chan struct{})}
	l.mu.Lock()
	gone := l.finished // by the sweep of a session that has ended
	if !gone {
		l.making = c
	}
	l.mu.Unlock()
	if gone {
		return errSessionEnded
	}
	select {
	case <-first: // what a creation that has failed has read
	default:
	}
	err := s.driver.spawn(func() {
		sent := clock.Now()
		ripe := s.ripe(sent)
		_ = s.driver.spawn(func() {
			v, _ := readView(s.conn, l.parent)
			select {
			case first <- v:
			default:
			}
		})
		c.path, c.err = s.conn.Create(l.node, l.data, zk.FlagEphemeralSequential, s.driver.acl)
		c.id = s.conn.SessionID()
		_ = s.heard(writes, sent, ripe, c.err)
		close(c.done)
	})
	if err != nil {
		l.made("")
	}
	return err
}

// seen returns the node before ours among the children, and whether ours is there.
func (l *lease) seen(v view) (before string, ok bool) {
	if l.shared {
		return l.seenShared(inQueue(v.children))
	}
	before, first, ok := ahead(v.children, l.owner)
	if !ok {
		return "", false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder = first; before == "" {
		l.token = uint64(v.pzxid)
	}
	return before, true
}

// heldBy returns the error of a lock that is another's, as we have seen last.
func (l *lease) heldBy() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &driver.HeldError{Holder: driver.Participant{ID: l.holder}}
}

// look returns the node that is before ours, if there is one. It also looks at our own: the session may have ended while we
// waited.
func (l *lease) look(ctx context.Context, o *outage.Outage) (before string, err error) {
	if l.shared {
		_, before, err = l.lookToBegin(ctx, o)
		return before, err
	}
	var ok bool
	err = o.Ask(ctx, func(ctx context.Context) error {
		v, err := l.session.view(ctx, reads, l.parent)
		if err == nil {
			before, ok = l.seen(v)
		}
		return err
	})
	if errors.Is(err, zk.ErrNoNode) || err == nil && !ok {
		return "", l.removed()
	}
	return before, err
}

// removed returns why our node is gone.
func (l *lease) removed() error {
	if !l.session.lasts() {
		return errSessionEnded
	}
	return errRemoved
}

// awaitDeparture waits for the node before ours to go, for some seconds, and reports whether it has. An event may be lost: in the end
// it looks at that node, and at our own.
func (l *lease) awaitDeparture(ctx context.Context, o *outage.Outage, before string) (gone bool, err error) {
	s := l.session
	var changes <-chan zk.Event
	err = o.Ask(ctx, func(ctx context.Context) (err error) {
		changes, err = s.watch(ctx, before)
		return err
	})
	if err != nil || changes == nil {
		return err == nil, err
	}
	lookAgain := min(max(s.TTL/3, time.Second), 5*time.Second)
	t := time.NewTimer(lookAgain + rand.N(lookAgain/4))
	defer t.Stop()
	select {
	case <-changes:
		return true, nil
	case <-t.C:
		return l.departed(ctx, o, before)
	case <-s.Context().Done():
		return false, errSessionEnded
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// departed reports whether the node before ours is gone. It fails if ours is.
func (l *lease) departed(ctx context.Context, o *outage.Outage, before string) (gone bool, err error) {
	var there [2]bool
	err = o.Ask(ctx, func(ctx context.Context) (err error) {
		there, err = call(ctx, l.session, reads, func(conn *zk.Conn) (there [2]bool, err error) {
			for i, node := range []string{l.at(), before} {
				if there[i], _, err = conn.Exists(node); err != nil {
					break
				}
			}
			return there, err
		})
		return err
	})
	if err == nil && !there[0] {
		err = l.removed()
	}
	return err == nil && !there[1], err
}
