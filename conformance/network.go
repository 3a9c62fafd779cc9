package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/internal/stdio"
)

var networkRows = []row{{
	name:    "a holder that is cut off knows in time, and harms nobody when it is back",
	promise: "A hold expires after one TTL, and its holder knows by then. A request that the holder sends later changes nothing, because the backend checks the owner.",
	sources: []string{kleppmann, chubby},
	needs:   []need{links, expire},
	body:    cutOff,
}, {
	name:    "a hold outlives the connection that it was taken on",
	promise: "A hold lasts one TTL unless it is extended or lost. If a connection breaks, the hold goes on, or its holder is told that it is lost.",
	sources: []string{contract},
	needs:   []need{links},
	body:    connectionBreaks,
}, {
	name:    "a hold goes on, or its loss is told, when one server does not answer an Extend",
	promise: "A hold lasts until its Deadline, or until its holder is told of the loss, even if one of the servers cannot be reached while the holder extends the hold.",
	sources: []string{contract, redsyncExtend},
	needs:   []need{links, extends},
	shows:   locker.Exclusive,
	body:    oneServerGone,
}, {
	name:    "on a slow link Lock succeeds only with half its TTL left",
	promise: "Lock succeeds only with at least half a TTL left, and a hold is counted from before the request was sent.",
	sources: []string{antirez, kleppmann},
	needs:   []need{links, expire},
	body:    slowLink,
}, {
	name:    "a hold that was granted over a slow link is over before another's begins",
	promise: "A hold lasts one TTL, counted from before the request that granted it was sent: the first, if it was sent again because no reply came.",
	sources: []string{antirez, kleppmann},
	needs:   []need{links, expire},
	body:    slowHold,
}, {
	name:    "a waiter that is cut off does not hold up those behind it",
	promise: "A waiter from which nothing more is heard is passed over within one TTL.",
	sources: []string{zkRecipe},
	needs:   []need{links},
	body:    waiterCutOff,
}, {
	name:    "a waiter that was cut off for longer than its TTL does not get the lock of another",
	promise: "Lock succeeds only when nobody else has the lock, even if the backend has removed the waiter from its queue long ago.",
	sources: []string{jepsenEtcd},
	needs:   []need{links},
	shows:   locker.Exclusive,
	body:    waiterBack,
}, {
	name:    "a waiter whose connections were broken is served, or told",
	promise: "Lock waits until the caller has the lock. If a connection breaks, it does not wait for ever: it gets the lock, or returns an error.",
	sources: []string{rueidisErrors},
	needs:   []need{links},
	body:    waiterReset,
}, {
	name:    "a renewed hold outlives a renewal that fails",
	promise: "A renewal that fails is repeated: an outage of a third of the TTL ends no renewed hold.",
	sources: []string{ownPrograms, chubby},
	needs:   []need{linkers, renews},
	body:    renewalFails,
}, {
	name:    "a renewed hold lasts, and can be unlocked, though no new connection can be made",
	promise: "A server that takes no more connections ends no hold: a hold is renewed, and Unlock frees the lock, on connections that are open.",
	sources: []string{fullServers},
	needs:   []need{linkers, renews},
	body:    noNewConnections,
}, {
	name:    "connections that fall silent are left for new ones within a TTL",
	promise: "When nothing arrives on open connections any more, and new ones work, Lock takes a free lock within about one TTL, Unlock frees the lock, a waiter gets what was unlocked, and no renewed hold is lost.",
	sources: []string{lostTables},
	needs:   []need{linkers, shares, renews},
	body:    silentConnections,
}}

func cutOff(e *env) {
	a, w := e.linked("A", e.name(), e.ttl)
	b := e.party("B", a.name, e.long)
	a.take()
	w.hold()
	b.lockBy(e.ttl+slack(e.ttl), "A, whose TTL is %v, was cut off", e.ttl)
	if token := a.token(); token != 0 {
		e.failf("A is cut off and B has the lock, and A's token is %d; want 0", token)
	}
	a.want("Extend, cut off and past its TTL", a.extend(), locker.ErrLost)
	a.want("Unlock, cut off and past its TTL", a.unlock(), locker.ErrLost)
	w.release()
	time.Sleep(e.settle()) // what A has sent arrives
	b.still("A is back")
	b.excludes(a, e.settle())
	b.release()
}

func connectionBreaks(e *env) {
	a, w := e.linked("A", e.name(), e.long)
	b := e.party("B", a.name, e.long)
	a.take()
	w.reset()
	ctx, cancel := context.WithTimeout(e.Context(), e.prompt/2)
	defer cancel()
	a.outlasts(ctx, b)
	a.drop()
	b.promptly("A has unlocked")
	b.release()
}

// oneServerGone has A extend its hold while A cannot reach one of the servers, which is drawn anew
// in each trial.
func oneServerGone(e *env) {
	a, w := e.linked("A", e.name(), e.long)
	b := e.party("B", a.name, e.long)
	a.take()
	servers := w.addresses()
	if len(servers) < 3 {
		e.skip("the Locker uses fewer than three servers, so it does not work if one of them does not answer")
	}
	mend := w.sever(servers[rand.N(len(servers))])
	retried := min(3*time.Second, e.long*3/4) // by a client that cannot reach a server
	ctx, cancel := context.WithTimeout(e.Context(), retried)
	defer cancel()
	extended := make(chan struct{})
	e.spawn(func() {
		defer close(extended)
		_ = a.extendWith(ctx)
	})
	select {
	case <-extended:
	case <-time.After(e.prompt): // it may need that server
	}
	ctx, cancel = context.WithTimeout(e.Context(), retried)
	defer cancel()
	a.outlasts(ctx, b)
	mend()
	a.drop()
}

func slowHold(e *env) { e.together(e.grantedSlowly, e.grantedAgain) }

// grantedAgain looks who holds when B gets the lock, which A asked for more than once, because no
// reply came.
func (e *env) grantedAgain() {
	e = e.story()
	name, ttl := e.name(), e.lifetime(time.Second)
	a, w := e.link("A", name, ttl)
	b := e.party("B", name, e.long)
	a.take() // there is a connection
	a.release()
	w.loseReplies()
	done := a.start(e.Context())
	time.Sleep(ttl * 2 / 5)
	w.mend()
	if <-done != nil {
		return
	}
	b.lockBy(ttl+e.patience, "A's TTL of %v is over", ttl)
	if why := a.believes(); why != "" {
		e.failf("B has the lock, while A, whose first reply was lost, still holds it, by %s", why)
	}
	_ = a.unlock()
	b.release()
}

// grantedSlowly looks who holds when B gets the lock, which A asked for over a slow link.
func (e *env) grantedSlowly() {
	name, ttl := e.name(), e.lifetime(time.Second)
	a, w := e.linked("A", name, ttl)
	b := e.party("B", name, e.long)
	a.take()
	a.release()
	delay := ttl / 5
	for ; ; delay /= 2 { // a Locker that sends several requests may be out of time before it has the lock
		w.delay(delay)
		err := a.lockWithin(e.patience)
		if err == nil {
			break
		}
		if delay < ttl/40 {
			e.skip(fmt.Sprintf("Lock fails on a slow link, even if a request takes only %v, there and back: %v", 2*delay, err))
		}
	}
	b.lockBy(ttl+e.patience, "A's TTL of %v is over", ttl)
	if why := a.believes(); why != "" {
		e.failf("B has the lock, while A, whose request took %v to arrive, still holds it, by %s", delay, why)
	}
	w.mend()
	_ = a.unlock()
	b.release()
}

func slowLink(e *env) {
	name, ttl := e.name(), e.lifetime(2*time.Second)
	a, w := e.linked("A", name, ttl)
	b := e.party("B", name, ttl)
	a.take()
	a.release()
	w.delay(ttl * 35 / 100) // there and back is more than half
	if err := a.lockWithin(ttl); err == nil {
		before := time.Now()
		if a.token() != 0 {
			if _, ok := can[power.Deadliner](a.l, stdio.CanDeadline); ok {
				e.within(a, "Lock")
			}
			if err := b.lockWithin(ttl/2 - pause); err == nil {
				e.failf("A's Lock succeeded on a slow link, and B got the lock %v later: half a TTL is %v", time.Since(before), ttl/2)
			}
		}
		w.mend()
		_ = a.unlock()
		b.lockFreed("A has unlocked")
		_ = b.unlock()
		return
	}
	w.mend()
	b.lockFreed("A's Lock failed")
	b.release()
}

func waiterCutOff(e *env) {
	name, ttl := e.name(), e.lifetime(time.Second)
	b, w := e.linked("B", name, ttl)
	a, c := e.party("A", name, e.long), e.party("C", name, ttl)
	a.take()
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	b.start(ctx)
	time.Sleep(3 * e.settle()) // it waits
	served := c.start(e.Context())
	time.Sleep(e.settle())
	w.hold()
	a.release()
	limit := ttl + slack(ttl) + 2*time.Second // the first may have been given the lock
	c.granted(served, limit, "A has unlocked, and B, which waited before it with a TTL of %v, is cut off", ttl)
	c.release()
}

// waiterBack has the holder unlock, and another take the lock, while a waiter is cut off. Then the
// waiter hears of both at once.
func waiterBack(e *env) {
	name, ttl := e.name(), e.lifetime(time.Second)
	b, w := e.linked("B", name, ttl)
	a, c := e.party("A", name, e.long), e.party("C", name, e.long)
	a.take()
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	waiting := b.start(ctx)
	time.Sleep(3 * e.settle()) // it waits
	w.hold()
	time.Sleep(ttl + slack(ttl))
	a.release()
	what := fmt.Sprintf("A has unlocked, and B, which waited with a TTL of %v, was cut off for that long before", ttl)
	c.lockBy(ttl+slack(ttl)+2*time.Second, "%s", what) // it may be B's for a TTL
	w.release()
	select {
	case err := <-waiting:
		if err == nil {
			c.overlap(b)
		}
	case <-time.After(e.prompt):
	}
	c.still("B is back")
	c.release()
}

func waiterReset(e *env) {
	name := e.name()
	b, w := e.linked("B", name, e.long)
	a, c := e.party("A", name, e.long), e.party("C", name, e.long)
	a.take()
	done := b.start(e.Context())
	time.Sleep(e.settle())
	w.reset()
	time.Sleep(e.settle())
	a.release()
	select {
	case err := <-done:
		if errors.Is(err, locker.ErrHeld) {
			e.failf("B's Lock, when its connections broke and ctx had not ended: %v", err)
		}
		if err == nil {
			b.release()
		}
	case <-time.After(e.prompt + e.patience):
		e.doubtf("%v after A's Unlock, B, whose connections broke, has neither the lock nor an error", e.prompt+e.patience)
	}
	c.afterOutage("nobody has the lock")
	c.release()
}

// renewalFails has what is sent between three tenths and two thirds of the TTL be lost, and the
// connections break: the first renewal, or the second.
func renewalFails(e *env) {
	name, ttl := e.name(), e.lifetime(3*time.Second)
	b := e.party("B", name, e.long)
	of, w := e.linkedClient(ttl, true)
	a := of("A", name)
	w.takes(a)
	time.Sleep(ttl * 3 / 10)
	w.hold()
	time.Sleep(ttl * 35 / 100)
	w.mend()
	time.Sleep(ttl * 13 / 10)
	what := fmt.Sprintf("for %v of its TTL of %v what A sent was lost; %v later", ttl*35/100, ttl, ttl*13/10)
	e.lives(a, b, what)
	a.drop()
}

func noNewConnections(e *env) {
	name, ttl := e.name(), e.lifetime(time.Second)
	b := e.party("B", name, e.long)
	of, w := e.linkedClient(ttl, true)
	a := of("A", name)
	w.takes(a)
	w.refuse()
	time.Sleep(2 * ttl)
	e.lives(a, b, fmt.Sprintf("for twice its TTL of %v no new connection could be made, and", ttl))
	a.release()
	b.promptly("A has unlocked")
	b.release()
}

// lives ends the trial unless a, which renews, holds yet.
func (e *env) lives(a, b *party, what string) {
	if b.lockWithin(e.settle()) == nil {
		e.doubtf("%s B got the lock, which A renews", what)
	}
	if a.believes() == "" {
		e.doubtf("%s A has lost the lock, which it renews", what)
	}
}

// silentConnections tells its stories side by side. The bound is a TTL, and no shorter time, for a
// request may be given half of one, and the next has a new connection.
func silentConnections(e *env) {
	ttl := e.lifetime(3 * time.Second)
	limit := ttl + e.prompt
	fallen := fmt.Sprintf("A's connections have fallen silent, with a TTL of %v", ttl)
	atLast := func(a *party) {
		ctx, cancel := context.WithTimeout(e.Context(), limit)
		defer cancel()
		if err := a.lockAtLast(ctx); err != nil {
			e.doubtf("%s, and for %v it does not get a free lock: %v", fallen, limit, err)
		}
		a.release()
	}
	e.together(func() {
		a, _, w := e.busy(ttl, false)
		a.release()
		w.hush()
		atLast(a)
	}, func() {
		a, b, w := e.busy(ttl, false)
		w.hush()
		a.sound("Unlock, on connections that have fallen silent,", a.unlock())
		b.promptly("A has unlocked")
		b.release()
	}, func() {
		a, b, w := e.busy(ttl, false)
		a.release()
		b.take()
		e.spawn(func() {
			time.Sleep(3 * e.settle()) // A waits
			w.hush()
			time.Sleep(e.settle())
			b.release()
		})
		atLast(a)
	}, func() {
		a, b, w := e.busy(ttl, true)
		time.Sleep(ttl / 2)
		w.hush()
		time.Sleep(3 * ttl / 2)
		e.lives(a, b, fallen+", and")
		a.drop()
	})
}

// busy makes a party that holds, by a client that has locked and unlocked several names at once, and
// so may have several connections; and one that would have the lock.
func (e *env) busy(ttl time.Duration, renew bool) (a, b *party, w *wire) {
	e = e.story()
	name := e.name()
	b = e.party("B", name, ttl)
	of, w := e.linkedClient(ttl, renew)
	a = of("A", name)
	w.takes(a)
	var others sync.WaitGroup
	for range 6 {
		other := of("A, by another name", e.name())
		others.Go(func() {
			if other.lockWithin(e.patience) == nil {
				_ = other.unlock()
			}
		})
	}
	others.Wait()
	return a, b, w
}
