package zookeeper

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

// Acquire implements driver.Driver. Who is not the first leaves the queue before it returns. A session that ended when nobody
// looked is no reason to fail: there is another.
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	o := newOutage(req.TTL, unheard)
	l, err := d.try(ctx, req, o)
	if errors.Is(err, errSessionEnded) {
		l, err = d.try(ctx, req, o) // what is left of the first goes as AcquireQueued has it
	}
	if last := o.Last(); last != nil && err != nil && err == ctx.Err() { //nolint:errorlint // one that wraps it has more to say
		err = last
	}
	if l == nil {
		return nil, err
	}
	return l.outcome(err)
}

// try takes a place in the queue, and leaves it again with ErrHeld if it is not the first.
func (d *Driver) try(ctx context.Context, req driver.Request, o *outage.Outage) (*lease, error) {
	l, err := d.contend(ctx, req, o)
	if err != nil {
		return nil, err
	}
	before, err := l.enter(ctx, o)
	switch {
	case err != nil:
	case before == "":
		err = l.fresh(ctx, o)
	default:
		_ = o.Ask(ctx, l.leave) // else the core goes on
		err = driver.ErrHeld
	}
	return l, err
}

// AcquireQueued implements driver.Queuer. A waiter whose session has ended begins again at the end of the
// queue.
func (d *Driver) AcquireQueued(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error) {
	o := newOutage(req.TTL, answered)
	for {
		l, err := d.contend(ctx, req, o)
		if err == nil {
			err = l.queue(ctx, o)
			if !errors.Is(err, errSessionEnded) {
				return l.outcome(err)
			}
			// Whatever is left of it goes with its connection, or the session sweeps it up.
		}
		if !errors.Is(err, errSessionEnded) {
			return nil, err
		}
		answered(err)
		if err := clock.Sleep(ctx, outage.Pause(req.TTL)); err != nil {
			return nil, err
		}
	}
}

// leave takes us out of a queue in which we are not the first.
func (l *lease) leave(ctx context.Context) error {
	if err := l.Release(ctx); !errors.Is(err, driver.ErrLost) {
		return err
	}
	return nil
}

// contend makes a contender that has no place yet.
func (d *Driver) contend(ctx context.Context, req driver.Request, o *outage.Outage) (*lease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	o.Explain = explain(func() error { return d.trouble(req.TTL) })
	var l *lease
	err := o.Ask(ctx, func(ctx context.Context) (err error) {
		l, err = d.join(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	o.Explain = explain(l.session.trouble)
	return l, nil
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

// queue takes a place in the queue and waits until it is the first.
func (l *lease) queue(ctx context.Context, o *outage.Outage) error {
	before, err := l.enter(ctx, o)
	for err == nil && before != "" {
		o.Answered(driver.ErrHeld)
		var gone bool
		if gone, err = l.awaitDeparture(ctx, o, l.parent+"/"+before); gone {
			before, err = l.look(ctx, o)
		}
	}
	if err != nil {
		return err
	}
	return l.fresh(ctx, o)
}

// fresh has a session of which little is left last long enough to begin a hold.
func (l *lease) fresh(ctx context.Context, o *outage.Outage) error {
	s := l.session
	if s.Left() >= s.TTL*3/5 {
		return nil
	}
	return o.Ask(ctx, func(ctx context.Context) error {
		err := s.refresh(ctx, l.at())
		if errors.Is(err, zk.ErrNoNode) {
			return l.removed()
		}
		return err
	})
}

// enter makes our node, and returns the one before it, if there is one.
func (l *lease) enter(ctx context.Context, o *outage.Outage) (before string, err error) {
	first := make(chan view, 1)
	var seen view
	err = o.Ask(ctx, func(ctx context.Context) error {
		for {
			err := l.settle(ctx)
			if err == nil {
				select {
				case seen = <-first:
				case <-ctx.Done(): // then it is read again
				}
			}
			if !errors.Is(err, errNothingMade) {
				return err
			}
			if err := l.begin(ctx, first); err != nil {
				return err
			}
		}
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

// begin has our node made, and before that those above it that are missing.
func (l *lease) begin(ctx context.Context, first chan view) error {
	switch err := l.whyNot(); {
	case errors.Is(err, zk.ErrNoNode):
		if err := l.session.makeParents(ctx, l.parent); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	if err := l.vacant(ctx); err != nil {
		return err
	}
	if err := l.session.connected(ctx); err != nil {
		return err
	}
	return l.create(first)
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
		_ = s.driver.spawn(func() {
			v, _ := readView(s.conn, l.parent)
			select {
			case first <- v:
			default:
			}
		})
		c.path, c.err = s.conn.Create(l.place.node, l.data, zk.FlagEphemeralSequential, s.driver.acl)
		c.id = s.conn.SessionID()
		_ = s.heard(writes, sent, c.err)
		close(c.done)
	})
	if err != nil {
		l.made("", nil)
	}
	return err
}

// seen says which node is before ours among the children, and that ours is there.
func (l *lease) seen(v view) (before string, ok bool) {
	before, ok = ahead(v.children, l.owner)
	if ok && before == "" {
		l.mu.Lock()
		l.token = uint64(v.pzxid)
		l.mu.Unlock()
	}
	return before, ok
}

// look returns the node that is before ours, if there is one. It also looks at our own: the session may have ended while we
// waited.
func (l *lease) look(ctx context.Context, o *outage.Outage) (before string, err error) {
	var ok bool
	err = o.Ask(ctx, func(ctx context.Context) error {
		v, err := l.session.children(ctx, l.parent)
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

// removed is why our node is gone.
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
		s.unwatch(before, changes)
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
