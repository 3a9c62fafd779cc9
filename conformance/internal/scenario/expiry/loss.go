package expiry

import (
	"context"
	"time"

	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
	"github.com/go-locker/locker/internal/tb"
)

// Loss are the scenarios of Lost and Deadline.
var Loss = []scenario.Row{{
	Name:    "Lost fires no later than Deadline",
	Promise: "Lost fires no later than the hold's deadline, and says nothing about a later hold.",
	Sources: []string{source.MostNews, source.Chubby},
	Needs:   []need.Need{need.Expire},
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.TTL)
		a.Tells()
		a.Take()
		a.LostBy(a.Deadline(), a.Lost())
		a.WantNoToken("after Lost has fired")
		a.Want("Extend after Lost has fired", a.Extend(), locker.ErrLost)
		a.Want("Unlock after Lost has fired", a.Unlock(), locker.ErrLost)
		a.Take()
		select {
		case <-a.Lost():
			a.Prolong() // is it lost?
			e.Doubtf("A's Lost has fired at the beginning of its second hold")
		default:
		}
		_ = a.Unlock()
	},
}, {
	Name:    "Lost does not fire while the hold is extended",
	Promise: "Lost fires when the hold ends before its Unlock, and not while it lasts.",
	Sources: []string{source.MostNews},
	Body: func(e *party.Env) {
		ttl := e.Lifetime(400 * time.Millisecond)
		a := e.Party("A", e.Name(), ttl)
		a.Tells()
		a.Take()
		lost := a.Lost()
		for end := time.Now().Add(3 * ttl / 2); time.Now().Before(end); {
			a.Prolong()
			select {
			case <-lost:
				e.Doubtf("A's Lost fired though A extends every %v a hold of %v", ttl/4, ttl)
			case <-time.After(ttl / 4):
			}
		}
		a.Release()
	},
}, {
	Name:    "Deadline is at most one TTL away, and at least half",
	Promise: "A hold lasts one TTL, counted from before the request that granted it; Lock succeeds only with at least half a TTL left.",
	Sources: []string{source.Antirez},
	Body: func(e *party.Env) {
		for _, ttl := range []time.Duration{e.TTL, e.Long} {
			a := e.Party("A", e.Name(), ttl)
			a.TellsDeadline()
			a.Take()
			e.Within(a, "Lock")
			a.Prolong()
			e.Within(a, "Extend")
			a.Release()
		}
	},
}, {
	Name:    "Extend moves Deadline forward",
	Promise: "Extend makes the hold last one TTL from now; deadlines never move backwards.",
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.Long)
		a.TellsDeadline()
		a.Take()
		first := a.Deadline()
		last := first
		for range 10 {
			time.Sleep(5 * time.Millisecond)
			a.Prolong()
			now := a.Deadline()
			if back := last.Sub(now); back > 0 {
				e.Doubtf("A's Extend moved Deadline back by %v", back)
			}
			last = now
		}
		if !last.After(first) {
			e.Doubtf("ten Extends in more than 50 ms did not move A's Deadline forward")
		}
		a.Release()
	},
}}

// Renewal are the scenarios of clients: they renew holds, and leave nothing behind.
var Renewal = []scenario.Row{{
	Name:    "a renewed hold outlives its TTL",
	Promise: "A hold that is renewed lasts until its Unlock: the first of a client and each later one, by Lock or by TryLock.",
	Needs:   []need.Need{need.Clients, need.Renews},
	Aside:   true,
	// This checks the renewal of a Locker's first hold, of its second one, and of a hold taken by
	// TryLock.
	Body: func(e *party.Env) {
		of := e.Client(e.Lifetime(time.Second), true) // a pause of the machine must not end the hold
		e.Together(
			func() { renewed(e, of, (*party.Party).Take) },
			func() { renewed(e, of, func(a *party.Party) { a.Take(); a.Release(); a.Take() }) },
			func() {
				renewed(e, of, func(a *party.Party) {
					if a.TryLock(e.Context()) != nil { // or there is none
						a.Take()
					}
				})
			},
		)
	},
}, {
	Name:    "renewal ends with Unlock",
	Promise: "Unlock ends the hold: a renewal that arrives later does nothing.",
	Sources: []string{source.RedissonRenewal},
	Needs:   []need.Need{need.Clients, need.Renews, need.Expire},
	// The next holder crashes: a renewal by A would keep its hold.
	Body: func(e *party.Env) {
		name := e.Name()
		a := e.Client(e.TTL, true)("A", name)
		b, c := e.Party("B", name, e.TTL), e.Party("C", name, e.TTL)
		a.Take()
		time.Sleep(e.TTL / 2) // a renewal has been sent
		a.Release()
		b.Promptly("A has unlocked")
		b.AwaitExpiry()
		c.LockBy(e.TTL+party.Slack(e.TTL), "B, whose TTL is %v, was heard of no more", e.TTL).Release()
	},
}, {
	Name:    "no goroutine outlives Close",
	Promise: "No goroutine outlives Close.",
	Alone:   true,
	Needs:   []need.Need{need.InGo},
	// This closes clients with Lockers in every state, and counts goroutines.
	Body: func(e *party.Env) {
		others := goleak.IgnoreCurrent()
		inner := *e
		inner.Scope = tb.Within(e, e.Fatalf)
		name := e.Name()
		a, b := inner.Party("A", name, e.Long), inner.Party("B", name, e.Long)
		for range 5 {
			a.Take()
			_ = b.LockWithin(5 * time.Millisecond)
			a.Release()
		}
		lost := inner.Party("C", e.Name(), e.TTL)
		lost.Take()
		lost.AwaitExpiry()
		if e.Harness.Client != nil {
			held := inner.Client(e.TTL, true)("D", e.Name())
			held.Take()
		}
		a.Take()
		waiter := make(chan error, 1)
		ctx, cancel := context.WithCancel(e.Context())
		e.Spawn(func() { waiter <- b.Lock(ctx) })
		time.Sleep(party.Settle / 3)
		cancel()
		e.Gone(b, waiter)
		inner.End()
		if err := goleak.Find(others); err != nil {
			e.Doubtf("after the Cleanups of New and Client: %v", err)
		}
	},
}}

// renewed has B try to get the lock until A has renewed its hold some dozens of times.
func renewed(e *party.Env, of func(who, name string) *party.Party, take func(a *party.Party)) {
	e = e.Story()
	a := of("A", e.Name())
	b := e.Party("B", a.Name, a.TTL)
	take(a)
	token := a.Token()
	if err := b.LockWithin(12 * a.TTL); err == nil {
		a.Overlap(b)
	}
	a.KeepsToken(token, "after renewals")
	a.Release()
	b.Promptly("A has unlocked").Release()
}
