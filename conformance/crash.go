package conformance

import (
	"time"

	"github.com/go-locker/locker"
)

var processRows = []row{{
	name:    "a process that was stopped past its TTL knows when it wakes",
	promise: "The holder's process decides by its own clock that a hold is lost, at the latest at the deadline. A process that was stopped until after the deadline reports the loss as soon as it runs.",
	sources: []string{kleppmann, mostNews},
	needs:   []need{processes, expire},
	body:    sleepsThrough,
}, {
	name:    "the hold of a process that was killed expires",
	promise: "A hold that nobody extends or unlocks expires after one TTL, and a waiter gets the lock.",
	sources: []string{redisDocs},
	needs:   []need{processes},
	body:    killedHolder,
}, {
	name:    "a process that is stopped while it waits does not hold up those behind it",
	promise: "A waiter from which nothing more is heard is passed over within one TTL.",
	sources: []string{zkRecipe, mutexReply},
	needs:   []need{processes, expire},
	body:    stoppedWaiter,
}, {
	name:    "a process that is killed while it waits does not hold up those behind it",
	promise: "A waiter from which nothing more is heard is passed over within one TTL.",
	sources: []string{zkRecipe},
	needs:   []need{processes},
	body:    killedWaiter,
}}

func sleepsThrough(e *env) {
	name := e.name()
	a, b := e.process("A", name, e.ttl), e.party("B", name, e.long)
	a.take()
	a.stop()
	b.lockBy(e.ttl+slack(e.ttl)+e.patience, "A was stopped past its TTL of %v", e.ttl)
	token := b.token()
	a.resume()
	if late := a.token(); late != 0 {
		b.still("A was stopped past its TTL and B has the lock")
		e.failf("A was stopped past its TTL, and B has the lock; A wakes, and its token is %d; want 0", late)
	}
	a.want("Extend when it wakes", a.extend(), locker.ErrLost)
	a.want("Unlock when it wakes", a.unlock(), locker.ErrLost)
	b.still("A has woken, and unlocked what it lost")
	if now := b.token(); now != token {
		e.failf("B's token was %d, and after A's Unlock of a lost hold it is %d", token, now)
	}
	b.release()
}

func killedHolder(e *env) {
	name := e.name()
	a, b := e.process("A", name, e.ttl), e.party("B", name, e.long)
	a.take()
	a.kill()
	b.lockBy(e.ttl+slack(e.ttl), "A, whose TTL is %v, was killed", e.ttl)
	b.release()
}

func stoppedWaiter(e *env) { e.waiterFails((*process).stop) }

func killedWaiter(e *env) { e.waiterFails((*process).kill) }

// waiterFails has the first of two waiters be heard of no more.
func (e *env) waiterFails(fail func(*process)) {
	name := e.name()
	ttl := e.lifetime(time.Second)
	a, b, c := e.party("A", name, e.long), e.process("B", name, ttl), e.party("C", name, ttl)
	a.take()
	b.start(e.Context())
	time.Sleep(3 * e.settle()) // it waits
	served := c.start(e.Context())
	time.Sleep(e.settle())
	fail(b)
	a.release()
	limit := ttl + slack(ttl) + 2*time.Second // the first may have been given the lock
	c.granted(served, limit, "A has unlocked, and B, which waited before it with a TTL of %v, is stopped", ttl)
	c.release()
}
