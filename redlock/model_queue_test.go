package redlock

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
)

// waitQueue is the queue of one lock on one node. Its owners are those that wait.
type waitQueue struct {
	queue     []inQueue // by their places
	kept      inQueue   // the lock is free, and only this one may take it; owner 0: nobody
	keptUntil int64
	place     uint64 // of the owner that has the lock; 0: it did not wait
}

type inQueue struct {
	owner, place uint64
	process      uint64 // of its client; 0: one of its own
	tell         func() // that the lock is kept for it
}

const keptFor = int64(2 * time.Second)

// keptFor reports whether the lock, which is free, is kept for another than asks. One for whom it was kept may come late, if nobody came before.
func (r *register) keptFor(now int64, asks uint64) bool {
	if asks != 0 && r.kept.owner == asks {
		return false
	}
	if r.keptUntil <= now {
		r.queue = slices.DeleteFunc(slices.Clone(r.queue), func(e inQueue) bool { return e.process != 0 && e.process == r.kept.process })
		r.kept = inQueue{}
	}
	if r.kept.owner == 0 {
		r.keepForFirst(now, asks)
	}
	return r.kept.owner != 0
}

// keepForFirst keeps the lock for the first of the queue, unless that is asks.
func (q *waitQueue) keepForFirst(now int64, asks uint64) {
	if len(q.queue) == 0 {
		return
	}
	first := q.queue[0]
	q.queue = slices.Clone(q.queue[1:])
	if first.owner != asks {
		q.kept, q.keptUntil = first, now+keptFor
		first.tell()
	}
}

func (q *waitQueue) enter(e inQueue) {
	if slices.ContainsFunc(q.queue, func(o inQueue) bool { return o.owner == e.owner }) {
		return
	}
	at, _ := slices.BinarySearchFunc(q.queue, e, func(o, e inQueue) int {
		return cmp.Or(cmp.Compare(o.place, e.place), cmp.Compare(o.owner, e.owner))
	})
	q.queue = slices.Insert(slices.Clone(q.queue), at, e)
}

func (q *waitQueue) leave(now int64, owner uint64) bool {
	if q.kept.owner == owner && owner != 0 {
		if q.keptUntil <= now {
			return false // left as it is
		}
		q.kept = inQueue{}
		q.keepForFirst(now, 0)
		return true
	}
	before := len(q.queue)
	q.queue = slices.DeleteFunc(slices.Clone(q.queue), func(o inQueue) bool { return o.owner == owner })
	return len(q.queue) < before
}

// turnAnswer is what a node answers to one that waits.
type turnAnswer struct {
	granted  bool
	accepted uint64
	earlier  bool
	left     time.Duration
}

// wait is take for an owner that waits.
func (r *register) wait(now int64, e inQueue, ttl int64, token uint64) turnAnswer {
	held := r.left(now)
	if held && r.owner != e.owner || !held && r.keptFor(now, e.owner) {
		r.enter(e)
		ahead := r.place
		if !held {
			ahead = r.kept.place
		}
		return turnAnswer{earlier: ahead > 0 && ahead < e.place, left: time.Duration(r.until - now)}
	}
	if !held {
		r.kept = inQueue{} // it is no longer in the queue
	}
	granted, accepted := r.grant(now, e.owner, ttl, token)
	r.place = e.place
	return turnAnswer{granted: granted, accepted: accepted}
}

// fakePlace is the client's side of an owner, which waits if it is to be woken.
type fakePlace struct {
	*registerLease
	entry inQueue
	ttl   time.Duration
	ask   func(ctx context.Context, script func(first bool, r *register, now int64)) (arrived bool, err error)
	woken func(kept bool)

	known, over atomic.Bool
}

// newPlace makes one whose messages take as long as delay says; below 0 they are lost.
func newPlace(
	l *registerLease, req driver.Request, place uint64, woken func(bool), delay func() time.Duration,
	ask func(ctx context.Context, script func(first bool, r *register, now int64)) (arrived bool, err error),
) *fakePlace {
	p := &fakePlace{registerLease: l, ttl: req.TTL, ask: ask, woken: woken}
	p.entry = inQueue{owner: l.owner, place: place, tell: func() {
		if d := delay(); d >= 0 {
			p.wakeAfter(d, true)
		}
	}}
	return p
}

func (p *fakePlace) wakeAfter(d time.Duration, kept bool) {
	time.AfterFunc(d, func() {
		if !p.over.Load() {
			p.woken(kept)
		}
	})
}

func (p *fakePlace) Propose(ctx context.Context, token uint64) (earlier bool, err error) {
	var answer atomic.Pointer[turnAnswer]
	sent := time.Now()
	arrived, err := p.ask(ctx, func(first bool, r *register, now int64) {
		if a := p.take(r, now, token); first {
			answer.Store(&a)
		}
	})
	if err != nil {
		if arrived {
			p.known.Store(true)
		}
		return false, err
	}
	a := answer.Load()
	if !a.granted && p.woken == nil {
		return false, driver.ErrHeld
	}
	p.known.Store(true)
	if a.granted {
		p.token.Store(a.accepted)
		p.until = sent.Add(p.ttl - p.late)
		return false, nil
	}
	look := time.Second
	if a.left > 0 && a.left < look {
		look = a.left + time.Millisecond
	}
	p.wakeAfter(look, false)
	return a.earlier, driver.ErrHeld
}

// take asks the register: once, or from a place in its queue.
func (p *fakePlace) take(r *register, now int64, token uint64) (a turnAnswer) {
	if p.woken != nil {
		return r.wait(now, p.entry, int64(p.ttl), token)
	}
	a.granted, a.accepted = r.take(now, p.owner, int64(p.ttl), token)
	return a
}

func (p *fakePlace) Known() bool { return p.known.Load() }

func (p *fakePlace) Release(ctx context.Context) error {
	p.over.Store(true)
	return p.registerLease.Release(ctx)
}
