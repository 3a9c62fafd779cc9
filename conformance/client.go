package conformance

import (
	"context"
	"time"

	"go.uber.org/goleak"

	"github.com/go-locker/locker/internal/tb"
)

var clientRows = []row{{
	name:    "a renewed hold outlives its TTL",
	promise: "A hold that is renewed lasts until its Unlock: the first of a client and each later one, by Lock or by TryLock.",
	sources: []string{contract},
	needs:   []need{clients, renews},
	aside:   true,
	body:    renewalKeeps,
}, {
	name:    "renewal ends with Unlock",
	promise: "Unlock ends the hold: a renewal that arrives later does nothing.",
	sources: []string{redissonRenewal},
	needs:   []need{clients, renews, expire},
	body:    renewalEnds,
}, {
	name:    "no goroutine outlives Close",
	promise: "No goroutine outlives Close.",
	sources: []string{contract},
	alone:   true,
	needs:   []need{inGo},
	body:    leaksNothing,
}}

// renewalKeeps watches a Locker's first hold, one after an earlier one, and one that TryLock took.
func renewalKeeps(e *env) {
	of := e.client(e.lifetime(time.Second), true) // a pause of the machine is not to end it
	e.together(
		func() { e.renewed(of, (*party).take) },
		func() { e.renewed(of, func(a *party) { a.take(); a.release(); a.take() }) },
		func() {
			e.renewed(of, func(a *party) {
				if a.tryLock(e.Context()) != nil { // or there is none
					a.take()
				}
			})
		},
	)
}

// renewed has B try to get what A holds for so long that A has renewed it some dozens of times.
func (e *env) renewed(of func(who, name string) *party, take func(a *party)) {
	e = e.story()
	a := of("A", e.name())
	b := e.party("B", a.name, a.ttl)
	take(a)
	token := a.token()
	if err := b.lockWithin(12 * a.ttl); err == nil {
		a.overlap(b)
	}
	if now := a.token(); now != token {
		a.prolong() // is it lost?
		e.failf("A's token was %d, and after renewals it is %d", token, now)
	}
	a.release()
	b.promptly("A has unlocked")
	b.release()
}

// renewalEnds has the next holder crash: a renewal that goes on would keep its hold.
func renewalEnds(e *env) {
	name := e.name()
	a := e.client(e.ttl, true)("A", name)
	b, c := e.party("B", name, e.ttl), e.party("C", name, e.ttl)
	a.take()
	time.Sleep(e.ttl / 2) // a renewal has been sent
	a.release()
	b.promptly("A has unlocked")
	b.awaitExpiry()
	c.lockBy(e.ttl+slack(e.ttl), "B, whose TTL is %v, was heard of no more", e.ttl)
	c.release()
}

// leaksNothing ends clients in every state of their Lockers, and counts goroutines.
func leaksNothing(e *env) {
	others := goleak.IgnoreCurrent()
	inner := *e
	inner.Scope = tb.Within(e, e.Fatalf)
	name := e.name()
	a, b := inner.party("A", name, e.long), inner.party("B", name, e.long)
	for range 5 {
		a.take()
		_ = b.lockWithin(5 * time.Millisecond)
		a.release()
	}
	lost := inner.party("C", e.name(), e.ttl)
	lost.take()
	lost.awaitExpiry()
	if e.h.Client != nil {
		held := inner.client(e.ttl, true)("D", e.name())
		held.take()
	}
	a.take()
	waiter := make(chan error, 1)
	ctx, cancel := context.WithCancel(e.Context())
	e.spawn(func() { waiter <- b.lock(ctx) })
	time.Sleep(settle / 3)
	cancel()
	e.gone(b, waiter)
	inner.End()
	if err := goleak.Find(others); err != nil {
		e.doubtf("after the Cleanups of New and Client: %v", err)
	}
}
