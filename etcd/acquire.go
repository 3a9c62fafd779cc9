package etcd

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

// Acquire implements driver.Driver: one request that puts the key only if the queue is empty.
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	return d.acquire(ctx, req, d.newOutage(req.TTL, unheard), taking{take: (*lease).try})
}

// AcquireQueued implements driver.Queuer. A waiter whose session has ended, or whose key somebody has removed, begins again at the
// end of the queue.
func (d *Driver) AcquireQueued(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error) {
	return d.acquire(ctx, req, d.newOutage(req.TTL, answered), taking{(*lease).queue, true})
}

// taking is how a contender takes the lock, or a share.
type taking struct {
	take func(l *lease, ctx context.Context, o *outage.Outage) error
	wait bool
}

// acquire contends for the lock. A session may have ended when nobody looked: without waiting it begins again once.
func (d *Driver) acquire(ctx context.Context, req driver.Request, o *outage.Outage, how taking) (driver.Lease, error) {
	for again := false; ; again = true {
		l, err := d.contend(ctx, req, o)
		if err != nil {
			return nil, err
		}
		err = how.take(l, ctx, o)
		removed := errors.Is(err, errRemoved)
		if again && !how.wait || !removed && !errors.Is(err, errSessionEnded) {
			return l.outcome(err)
		}
		if !removed {
			_ = l.finish(driver.ErrLost) // all that was on the session is gone
		} else if err := l.Release(ctx); err != nil && !errors.Is(err, driver.ErrLost) {
			return l, err
		}
		if how.wait {
			o.Answered(err)
			if err := clock.Sleep(ctx, outage.Pause(req.TTL)); err != nil {
				return nil, err
			}
		}
	}
}

// contend makes a contender that has no place yet.
func (d *Driver) contend(ctx context.Context, req driver.Request, o *outage.Outage) (*lease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	if s, ok := d.sessions.Find(req.TTL); ok && s.Started() {
		if l, ok := s.join(req); ok {
			return l, nil
		}
	}
	return ask(ctx, o, func(ctx context.Context) (*lease, error) { return d.join(ctx, req) })
}

// outcome returns what an acquiring method does, after err: no lease if nothing can have been taken.
func (l *lease) outcome(err error) (driver.Lease, error) {
	l.mu.Lock()
	nothing := err != nil && !l.doubtful && l.created == 0
	l.mu.Unlock()
	if nothing {
		_ = l.finish(driver.ErrLost)
		return nil, err
	}
	return l, err
}

// try takes the lock if the queue is empty.
func (l *lease) try(ctx context.Context, o *outage.Outage) error {
	empty := clientv3.Compare(clientv3.CreateRevision(l.folder), "=", 0).WithPrefix()
	resp, err := l.take(ctx, o, func(txn clientv3.Txn) clientv3.Txn {
		return txn.If(l.alive(), empty).Then(l.put()).Else(l.own(), clientv3.OpGet(l.folder, clientv3.WithFirstCreate()...))
	})
	if err != nil {
		return err
	}
	if l.revision() == 0 {
		switch holder := first(resp.Responses[1]); {
		case holder == nil:
			return driver.ErrHeld
		case isContender(holder, l.folder):
			return &driver.HeldError{Holder: participant(holder, l.folder)}
		}
		// The oldest key is not one of ours: the queue shows who comes first.
		ahead, err := l.enqueue(ctx, o)
		if err != nil {
			return err
		}
		if ahead != "" {
			return driver.ErrHeld
		}
	}
	return l.fresh(ctx, o)
}

// queue takes a place in the queue and waits until it is the first.
func (l *lease) queue(ctx context.Context, o *outage.Outage) error {
	ahead, err := l.enqueue(ctx, o)
	return l.wait(ctx, o, ahead, err)
}

// wait waits until nobody is ahead whom we wait for, after a look that returned ahead and err.
func (l *lease) wait(ctx context.Context, o *outage.Outage, ahead string, err error) error {
	for err == nil && ahead != "" {
		o.Answered(driver.ErrHeld)
		ahead, err = l.awaitDeparture(ctx, o, ahead)
	}
	if err != nil {
		return err
	}
	return l.fresh(ctx, o)
}

// fresh renews a session of which little is left.
func (l *lease) fresh(ctx context.Context, o *outage.Outage) error {
	if s := l.session; s.Left() < s.TTL/5*3 {
		return o.Ask(ctx, s.renew)
	}
	return nil
}
