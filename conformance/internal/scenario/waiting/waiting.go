// Package waiting has the scenarios of waiters: of their order, of the end of their context, and of
// the notification of the holder.
package waiting

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/contention"
	"github.com/go-locker/locker/conformance/internal/fault"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
)

// Rows are the scenarios of waiters.
var Rows = []scenario.Row{{
	Name: "a waiter wakes when the holder unlocks",
	Promise: "A waiter gets the lock when the holder unlocks, not only when the TTL of that hold " +
		"has passed, and however long ago its client last waited: what expires meanwhile, such " +
		"as a token by which a server knows its user, is renewed.",
	Sources: []string{source.LongPauses},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		wakes(e, a, b)
		time.Sleep(longPause)
		wakes(e, a, b)
	},
}, {
	Name:    "waiters miss none of many unlocks",
	Promise: "A waiter gets the lock when the holder unlocks, not only when the TTL of that hold has passed.",
	Chance:  true,
	// Pairs of processes take turns, each pair on a name of its own: many unlocks in little time.
	Body: func(e *party.Env) {
		var wg sync.WaitGroup
		for range party.Contenders / 2 {
			a, b := e.Rivals(e.Long, e.Long)
			a.Take()
			wg.Go(func() { takeTurns(e, a, b) })
		}
		wg.Wait()
	},
}, {
	Name:    "a waiter wakes when the holder has crashed",
	Promise: "A hold that nobody extends or unlocks expires after one TTL, and a waiter gets the lock.",
	Sources: []string{source.RedisDocs},
	Needs:   []need.Need{need.Expire},
	Body: func(e *party.Env) {
		name, ttl := e.Name(), e.Lifetime(1200*time.Millisecond) // longer than slack
		a, b := e.Party("A", name, ttl), e.Party("B", name, ttl)
		a.Take()
		b.LockBy(ttl+party.Slack(ttl), "A took the lock for %v and was heard of no more", ttl).Release()
	},
}, {
	Name:    "everyone who waits is served",
	Promise: "Lock waits until the lock is held: nobody who waits is forgotten, and however many wait, one at a time gets it.",
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.Long)
		waiters := e.Multitude(a.Name)
		a.Take() // measures the latency
		a.Release()
		if time.Duration(e.Pace.Answer.Load()) > party.Settle/2 {
			waiters = waiters[:party.Contenders]
		}
		serve(e, a, waiters)
	},
}, {
	Name:    "everyone who waits on one Locker is served",
	Promise: "A Locker may be used by several goroutines: nobody who waits is forgotten.",
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.Long)
		serve(e, a, party.Sharers(a))
	},
}, {
	Name:    "waiters are served in the order in which they came",
	Promise: "Waiters are served first come, first served.",
	Sources: []string{source.ZkRecipe},
	Shows:   locker.Ordered,
	Body: func(e *party.Env) {
		name := e.Name()
		a, waiters := e.Party("A", name, e.Long), e.Processes(name)
		a.Take()
		served := make(chan int, len(waiters))
		for i, p := range waiters {
			done := p.Start(e.Context())
			e.Spawn(func() {
				if <-done == nil {
					served <- i
					_ = p.Unlock()
				}
			})
			time.Sleep(e.Settle()) // it is in the queue
		}
		a.Release()
		for i := range waiters {
			select {
			case next := <-served:
				if next != i {
					e.Doubtf("%s, who came as number %d, was served as number %d", waiters[next].Who, next+1, i+1)
				}
			case <-time.After(e.Long):
				e.Doubtf("%d of %d waiters were served within %v", i, len(waiters), e.Long)
			}
		}
	},
}, {
	Name:    "a waiter has the lock within a few round trips of the Unlock",
	Promise: "Waiters are woken by the backend; they need not poll.",
	Sources: []string{source.ZkRecipe},
	Shows:   locker.Woken,
	// This compares the time from Unlock to a waiter's grant with that of Lock and Unlock of a free
	// lock.
	Body: func(e *party.Env) {
		const rounds = 9
		a, b := e.Rivals(e.Long, e.Long)
		var pairs, waits []time.Duration
		for range rounds {
			start := time.Now()
			a.Take()
			a.Release()
			pairs = append(pairs, time.Since(start))
		}
		for range rounds {
			a.Take()
			done := b.Start(e.Context())
			time.Sleep(e.Settle() + rand.N(e.Settle())) // not in step with a waiter that polls
			a.Release()
			start := time.Now()
			b.Served(done)
			waits = append(waits, time.Since(start))
			b.Release()
		}
		pair, wait := median(pairs), median(waits)
		if limit := 10*pair + 20*time.Millisecond; wait > limit {
			e.Doubtf("a waiter has the lock %v after Unlock, when Lock and Unlock of a free lock take %v", wait, pair)
		}
	},
}, {
	Name:    "a waiter sends next to nothing while nothing happens",
	Promise: "Waiters are woken by the backend; they need not poll.",
	Sources: []string{source.ZkRecipe},
	Needs:   []need.Need{need.Links},
	Shows:   locker.Woken,
	// This counts the requests of a waiter. It may keep a session alive, and check now and then
	// that it is still in the queue: this module's waiters send two at most. A waiter that polls
	// every 100 ms sends twenty.
	Body: func(e *party.Env) {
		const watched, limit = 2 * time.Second, 8
		name := e.Name()
		a := e.Party("A", name, e.Long)
		b, w := fault.Linked(e, "B", name, e.Long)
		a.Take()
		done := b.Start(e.Context())
		time.Sleep(3 * e.Settle()) // it waits
		before := w.Requests()
		a.KeepsWaiting(b, done, watched)
		sent := w.Requests() - before
		a.Drop()
		b.Served(done)
		b.Release()
		if most := limit * max(1, len(w.Addresses())); sent > most {
			e.Doubtf("B, who waits, has sent %d requests in %v in which nothing happened; want at most %d", sent, watched, most)
		}
	},
}}

// longPause is longer than the lifetime of credentials at servers that are set up for this
// scenario: a second.
const longPause = 3 * time.Second

// wakes has b wait while a holds, and get the lock when a unlocks.
func wakes(e *party.Env, a, b *party.Party) {
	a.Take()
	done := b.Start(e.Context())
	a.KeepsWaiting(b, done, 3*e.Settle()) // it waits
	a.Release()
	b.Granted(done, e.Prompt, "A has unlocked; the TTL is %v", e.Long).Release()
}

// takeTurns has the holder unlock when the waiter should be waiting, and then the other way round.
func takeTurns(e *party.Env, holder, waiter *party.Party) {
	const rounds = 300
	end := time.Now().Add(contention.Time)
	for i := 1; i <= rounds && time.Now().Before(end); i++ {
		done := waiter.Start(e.Context())
		// Now and then Unlock comes first, or at the same time.
		time.Sleep(rand.N(2 * time.Millisecond))
		holder.Drop()
		waiter.Granted(done, e.Prompt, "Unlock %d has returned", i)
		holder, waiter = waiter, holder
	}
	holder.Drop()
}

// serve has each of the waiters lock once while a holds, and checks that each holds alone. The
// order does not matter.
func serve(e *party.Env, a *party.Party, waiters []*party.Party) {
	a.Take()
	first := contention.Interval{Who: a.Who, From: time.Now()}
	served := contention.Queue(e, waiters)
	time.Sleep(e.Settle())
	first.To = time.Now()
	a.Release()
	contention.Disjoint(e, append(served(), first))
}

func median(d []time.Duration) time.Duration { return slices.Sorted(slices.Values(d))[len(d)/2] }

// Wanted are the scenarios of Wanted.
var Wanted = []scenario.Row{{
	Name:    "a holder that asks is told that somebody waits",
	Promise: "Wanted fires when somebody waits for the lock, and before the waiter has it. It does not fire while nobody waits.",
	Queued:  true,
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		a.Take()
		wanted := wantedOf(a)
		select {
		case <-wanted:
			e.Failf("A's Wanted has fired, and nobody has called Lock but A")
		case <-time.After(3 * e.Settle()):
		}
		done := b.Start(e.Context())
		select {
		case <-wanted:
		case err := <-done:
			e.Early(a, b, err)
		case <-time.After(e.Prompt):
			e.Doubtf("%v after B's Lock was called A's Wanted has not fired; the TTL is %v", e.Prompt, e.Long)
		}
		a.Release()
		b.Granted(done, e.Prompt, "A has unlocked, because it was wanted")
		select {
		case <-wantedOf(b):
			e.Doubtf("B's Wanted has fired, and nobody waits any more")
		case <-time.After(e.Settle()):
		}
		b.Release()
	},
}, {
	Name:    "a holder whose connections break hears that somebody waits",
	Promise: "Wanted fires when somebody waits for the lock, also if the connections break just then.",
	Needs:   []need.Need{need.Links},
	Queued:  true,
	// A's notification of a waiter is lost.
	Body: func(e *party.Env) {
		a, w := fault.Linked(e, "A", e.Name(), e.Lifetime(4*time.Second))
		b := e.Party("B", a.Name, e.Long)
		a.Take()
		wanted := wantedOf(a)
		time.Sleep(3 * e.Settle()) // its subscription is in force
		w.Hold()
		done := b.Start(e.Context())
		time.Sleep(2 * e.Settle()) // it waits
		w.Mend()
		for end := time.Now().Add(a.TTL + e.Prompt); ; {
			select {
			case <-wanted:
				a.Drop()
				b.Granted(done, e.Prompt, "A has unlocked, because it was wanted").Release()
				return
			case err := <-done:
				e.Early(a, b, err)
			case <-time.After(a.TTL / 8):
				_ = a.Extend() // which is late if the hold is lost, as B will say
			}
			if time.Now().After(end) {
				e.Doubtf("B waits, and %v after A's connections broke A's Wanted has not fired; its TTL is %v", a.TTL+e.Prompt, a.TTL)
			}
		}
	},
}}

// wantedOf skips the scenario if the Locker has no Wanted.
func wantedOf(p *party.Party) <-chan struct{} {
	l, ok := power.Of[power.Wanter](p.Locker)
	if !ok {
		p.Env.Skip("the Locker has no Wanted")
	}
	return l.Wanted()
}
