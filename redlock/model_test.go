package redlock

import (
	"cmp"
	"slices"
	"time"
)

// register is one lock on one node, as the Lua scripts of internal/redisscript keep it; see
// TestRegister_isWhatRedisDoes. Times are in nanoseconds on the node's own clock.
type register struct {
	owner  uint64 // 0: nobody
	last   uint64 // accepted, and so the token of the lock while there is one
	before uint64 // the last of the lock before
	lapsed uint64
	until  int64  // when the lock expires
	known  bool   // false: nothing, or everything forgotten
	most   uint64 // what is larger is too far ahead, unless it is the last; 0: nothing is
	clock  uint64 // accepted in place of that, or, where nothing is known, of what is smaller
	waitQueue
}

// left reports whether there is a lock that has not expired.
func (r *register) left(now int64) bool { return r.owner != 0 && r.until > now }

// take returns the token if the lock is granted to owner.
func (r *register) take(now int64, owner uint64, ttl int64, token uint64) (granted bool, accepted uint64) {
	if !r.left(now) && r.keptFor(now, 0) {
		return false, 0
	}
	return r.grant(now, owner, ttl, token)
}

// grant is take, where the queue allows it.
func (r *register) grant(now int64, owner uint64, ttl int64, token uint64) (granted bool, accepted uint64) {
	if r.left(now) {
		if r.owner == owner {
			r.until = now + ttl
			return true, r.last // sent twice
		}
		return false, 0
	}
	if r.most > 0 && token > r.most || !r.known && token < r.clock {
		token = r.clock
	}
	switch {
	case !r.known:
		r.lapsed = token - 1
	case r.owner != 0:
		r.lapsed = r.last
	}
	if r.known && token <= r.last {
		token = r.last + 1
	}
	r.before = r.last
	r.known, r.owner, r.last, r.until, r.place = true, owner, token, now+ttl, 0
	return true, token
}

func (r *register) extend(now int64, owner uint64, ttl int64) bool {
	if !r.left(now) || r.owner != owner {
		return false
	}
	r.until = now + ttl
	return true
}

func (r *register) raise(now int64, owner uint64, token uint64) bool {
	ours := r.left(now) && r.owner == owner
	if !ours || token < r.last || r.tooFar(token) {
		return false
	}
	r.known, r.last = true, token
	return true
}

// tooFar reports whether a raise of the lock's owner is refused.
func (r *register) tooFar(token uint64) bool { return r.most > 0 && token > max(r.most, r.last) }

func (r *register) release(now int64, owner uint64, token uint64, again bool) bool {
	if r.owner == owner && owner != 0 {
		if !r.left(now) {
			return false
		}
		r.owner = 0
		r.keepForFirst(now, 0)
		return true
	}
	if r.leave(now, owner) {
		return true
	}
	granted := token == r.before || token == r.last && r.owner == 0
	return again && token > 0 && r.known && r.lapsed < token && granted
}

// forget is what a restart without data does.
func (r *register) forget() { *r = register{most: r.most, clock: r.clock} }

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

// keptFor reports whether the lock, which is free, is kept for another than asks. One for whom it
// was kept may come late, if nobody came before.
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
