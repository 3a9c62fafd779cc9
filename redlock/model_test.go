package redlock

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
