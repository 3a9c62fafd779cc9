package redisscript

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// AcquireQueued implements driver.Queuer. The first request takes the lock, or a place in the queue. After
// that the waiter asks again when it is woken: because the lock is claimed for it, or because it is the
// first of this Driver's waiters and has to look whether the queue still stands.
func (d *Driver) AcquireQueued(
	ctx context.Context, req driver.Request, answered func(error),
) (driver.Lease, error) {
	return d.acquireQueued(ctx, req, answered, alone)
}

// AcquireSharedQueued implements driver.Sharer. It waits as AcquireQueued does.
func (d *Driver) AcquireSharedQueued(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error) {
	return d.acquireQueued(ctx, req, answered, shared)
}

func (d *Driver) acquireQueued(ctx context.Context, req driver.Request, answered func(error), how kind) (driver.Lease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	l := d.waitingLease(req, how)
	w := d.hub.enter(l)
	defer func() { d.hub.leave(w) }()
	var known driver.Lease // l, if the server may know of it
	pause := 5 * time.Millisecond
	for {
		sent := clock.Now()
		a, err := l.take(ctx, -int64(w.place))
		if a.status == unknown || a.status == held {
			known = l
		}
		switch {
		case a.status == granted:
			return l, nil
		case ctx.Err() != nil:
			return known, ctx.Err()
		case err == nil:
			answered(a.heldBy())
			d.hub.placed(w, a)
			if l.owner[0] != polls && d.hub.refused() {
				l, w = d.withoutSubscription(ctx, l, req, w, how)
				known = l
				continue
			}
			w.wait(ctx)
		default:
			answered(err)
			if d.hub.silence(w, sent) > req.TTL/2 || !l.takeEnded() {
				return known, err // a waiter rides out a short outage, and no other
			}
			_ = clock.Sleep(ctx, pause/2+rand.N(pause))
			pause = min(2*pause, 250*time.Millisecond)
		}
	}
}

// What the owner of a waiter begins with; see queue.lua.
const (
	subscribes        = 'p'
	subscribesSharded = 's'
	polls             = '-'
)

// waitingLease returns a lease that may wait in the queue for its grant.
func (d *Driver) waitingLease(req driver.Request, how kind) *lease {
	return d.newLease(req, d.hub.prefixes[d.hub.kind()], how)
}

// kind returns what the owner of a waiter begins with.
func (h *hub) kind() byte {
	switch {
	case h.refused():
		return polls
	case h.runner.Sharded():
		return subscribesSharded
	default:
		return subscribes
	}
}

// withoutSubscription puts a lease that polls in the place of l, which cannot be told anything.
func (d *Driver) withoutSubscription(ctx context.Context, l *lease, req driver.Request, w *waiter, how kind) (*lease, *waiter) {
	asking, cancel := context.WithTimeout(ctx, req.TTL/4)
	defer cancel()
	_ = l.Release(asking) // if that fails, the queue passes over it
	d.hub.leave(w)
	place := w.place
	l = d.waitingLease(req, how)
	w = d.hub.enter(l)
	w.place = place
	return l, w
}

// decline hands over a claim for an owner that waits no more. If that fails the claim expires.
func (d *Driver) decline(ctx context.Context, keys []any, owner string) {
	_, _ = d.sender.call(ctx, release, keys, claimMark+owner, 1, 0)
}
