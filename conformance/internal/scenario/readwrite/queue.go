package readwrite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/fault"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
)

// Queue are the scenarios of the order of readers and writers.
var Queue = sharing([]scenario.Row{{
	Name:    "readers that come after a waiting writer wait for it",
	Promise: "A share is not granted while a writer that asked earlier waits.",
	Sources: []string{source.GoRWMutex, source.ZkShared},
	Shows:   locker.Ordered,
	Body: func(e *party.Env) {
		a, b, w := e.RWTrio(e.Long)
		a.Share()
		writer := w.StartLock(e.Context())
		err := b.TryRLock()
		if err == nil {
			e.Doubtf("B's TryRLock succeeded while C waits for the lock")
		}
		b.Want("TryRLock while C waits for the lock", err, locker.ErrHeld)
		reader := b.StartShare(e.Context())
		b.Queued(reader, "C, who waits for A")
		a.Release()
		w.Granted(writer, e.Prompt, "A, the only one with a share, has unlocked")
		w.KeepsOut(b, "RLock", reader)
		w.Release()
		b.Granted(reader, e.Prompt, "C has unlocked").Release()
	},
}, {
	Name:    "a writer's Unlock lets in all readers up to the next writer",
	Promise: "When a share at the head of the queue is granted, all shares up to the first writer in the queue are granted, and no others.",
	Sources: []string{source.GoRWMutex, source.ZkShared},
	Shows:   locker.Ordered,
	// A newcomer tries for a share while the run of readers is let in.
	Body: func(e *party.Env) {
		all := e.RWParties(7)
		first, run, second, last, newcomer := all[0], all[1:4], all[4], all[5], all[6]
		first.Take()
		var readers []<-chan error
		for _, p := range run {
			readers = append(readers, p.StartShare(e.Context()))
		}
		writer := second.StartLock(e.Context())
		reader := last.StartShare(e.Context())
		first.Release()
		if newcomer.TryRLock() == nil {
			e.Doubtf("%s's TryRLock succeeded while %s waits for the lock", newcomer.Who, second.Who)
		}
		for i, p := range run {
			p.Granted(readers[i], e.Prompt, "A has unlocked, and before %s there are but readers", p.Who)
		}
		run[0].KeepsOut(second, "Lock", writer)
		last.Queued(reader, second.Who+", who waits for the lock")
		for _, p := range run {
			p.Release()
		}
		second.Granted(writer, e.Prompt, "the readers before it have unlocked")
		second.KeepsOut(last, "RLock", reader)
		second.Release()
		last.Granted(reader, e.Prompt, "%s has unlocked", second.Who).Release()
	},
}, {
	Name:    "readers that overlap without end do not starve a writer",
	Promise: "A writer waits for the readers before it, not for those that come later.",
	Sources: []string{source.GoRWMutex},
	Shows:   locker.Ordered,
	Chance:  true,
	Body: func(e *party.Env) {
		amid(e, 5, (*party.Party).RLock, e.Settle()/2, func(w *party.Party) {
			w.LockBy(e.Prompt, "five readers hold shares for %v, and take new ones", e.Settle()/2)
		})
	},
}, {
	Name:    "writers that come without end do not starve a reader",
	Promise: "A reader waits for the writers before it, not for those that come later.",
	Sources: []string{source.GoRWMutex},
	Shows:   locker.Ordered,
	Chance:  true,
	Body: func(e *party.Env) {
		amid(e, 4, (*party.Party).Lock, e.Settle()/10, func(r *party.Party) {
			r.ShareAfter("four writers hold the lock for a few milliseconds each, in turns")
		})
	},
}, {
	Name:    "when a writer gives up, readers behind the next writer still wait",
	Promise: "A share is not granted while a writer that asked earlier waits, even if another writer before it gives up.",
	Sources: []string{source.GoRWMutex, source.ZkShared},
	Shows:   locker.Ordered,
	Body: func(e *party.Env) {
		all := e.RWParties(5)
		a, first, b, second, last := all[0], all[1], all[2], all[3], all[4]
		a.Share()
		ctx, cancel := context.WithCancel(e.Context())
		defer cancel()
		writer, reader := first.StartLock(ctx), b.StartShare(e.Context())
		next, behind := second.StartLock(e.Context()), last.StartShare(e.Context())
		cancel()
		e.Gone(first, writer)
		b.Granted(reader, e.Prompt, "A has a share, and B, who waited for the lock before C, gave up")
		last.Queued(behind, "D, who waits for the lock")
		a.Release()
		b.KeepsOut(second, "Lock", next)
		b.Release()
		second.Granted(next, e.Prompt, "the readers before it have unlocked")
		second.KeepsOut(last, "RLock", behind)
		second.Release()
		last.Granted(behind, e.Prompt, "D has unlocked").Release()
	},
}, {
	Name:    "a writer's expiry lets in all readers that wait",
	Promise: "A hold that nobody extends or unlocks expires after one TTL, and all who wait for a share get one.",
	Sources: []string{source.RedisDocs},
	Needs:   []need.Need{need.Expire},
	Body: func(e *party.Env) {
		name, ttl := e.Name(), e.Lifetime(time.Second)
		w := e.RWParty("W", name, ttl)
		run := make([]*party.Party, 3)
		readers := make([]<-chan error, len(run))
		w.Take()
		for i := range run {
			run[i] = e.RWParty(fmt.Sprintf("reader %d", i+1), name, e.Long)
			readers[i] = run[i].StartShare(e.Context())
		}
		for i, p := range run {
			p.Granted(readers[i], ttl+party.Slack(ttl), "W took the lock for %v and was heard of no more", ttl)
		}
		for _, p := range run {
			p.Prolong().Release()
		}
	},
}, {
	Name: "a writer that is killed while it waits does not hold up the readers behind it",
	Promise: "A waiter from which nothing more is heard is passed over within one TTL, and the " +
		"readers behind it share the lock with those before it.",
	Sources: []string{source.ZkRecipe, source.ZkShared},
	Needs:   []need.Need{need.Processes},
	Body:    func(e *party.Env) { writerFails(e, (*fault.Process).Kill, time.Second) },
}, {
	Name: "a writer that is stopped while it waits does not hold up the readers behind it",
	Promise: "A waiter from which nothing more is heard is passed over within one TTL, though " +
		"its connections are open: the readers behind it share the lock with those before it.",
	Sources: []string{source.ZkRecipe, source.ZkShared},
	Needs:   []need.Need{need.Processes},
	// The TTL is longer: a backend cannot detect a stopped writer by its connections.
	Body: func(e *party.Env) { writerFails(e, (*fault.Process).Stop, 8*time.Second) },
}, {
	Name:    "a writer that gives up lets in the readers behind it",
	Promise: "Everything that a failed attempt left behind (key, queue entry, goroutine) is cleaned up: nobody waits for it.",
	Sources: []string{source.ZkRecipe, source.ZkShared},
	Body: func(e *party.Env) {
		a, b, w := e.RWTrio(e.Long)
		a.Share()
		ctx, cancel := context.WithCancel(e.Context())
		defer cancel()
		writer := w.StartLock(ctx)
		reader := b.StartShare(e.Context())
		cancel()
		e.Gone(w, writer)
		b.Granted(reader, e.Prompt, "A has a share, and C, who waited for the lock before B, gave up")
		a.Prolong().Release()
		b.Release()
	},
}, {
	Name: "a reader that gives up leaves nothing behind",
	Promise: "Everything that a failed attempt left behind (key, queue entry, goroutine) is " +
		"cleaned up: no share is left, and nobody else loses a place in the queue.",
	Sources: []string{source.ZkRecipe, source.RedsyncCancel},
	// Readers wait before and behind the reader that gives up.
	Body: func(e *party.Env) {
		all := e.RWParties(5)
		a, b, w, neighbours := all[0], all[1], all[2], all[3:]
		a.Take()
		ctx, cancel := context.WithCancel(e.Context())
		defer cancel()
		before := neighbours[0].StartShare(e.Context())
		reader := b.StartShare(ctx)
		behind := neighbours[1].StartShare(e.Context())
		cancel()
		e.Gone(b, reader)
		a.Release()
		neighbours[0].Granted(before, e.Prompt, "A has unlocked, and B, who waited for a share, too, gave up")
		neighbours[1].Granted(behind, e.Prompt, "A has unlocked, and B, who waited for a share before it, gave up")
		for _, p := range neighbours {
			p.Release()
		}
		time.Sleep(e.Settle()) // a leftover of B may claim a share before C locks
		w.Promptly("B gave up waiting for a share, all others have unlocked")
		w.Prolong().Release()
	},
}})

// amid has one party get what it wants while n others lock and unlock without end.
func amid(e *party.Env, n int, lock func(*party.Party, context.Context) error, hold time.Duration, get func(*party.Party)) {
	all := e.RWParties(n + 1)
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	for _, p := range all[1:] {
		e.Spawn(func() {
			for ctx.Err() == nil {
				if lock(p, ctx) != nil {
					party.SleepUntil(ctx, time.Millisecond)
					continue
				}
				time.Sleep(hold/2 + rand.N(hold))
				_ = p.Unlock() // losses are not tested here
			}
		})
	}
	time.Sleep(2 * e.Settle())
	get(all[0])
	cancel()
	all[0].Prolong()
	all[0].Release()
}

// writerFails makes a waiting writer fail. The reader before it keeps its share; the reader behind
// it has to get one beside it.
func writerFails(e *party.Env, fail func(*fault.Process), ttl time.Duration) {
	name := e.Name()
	ttl = e.Lifetime(ttl)
	a, w, c := e.RWParty("A", name, 2*e.Long+ttl), fault.StartProcess(e, "B", name, ttl), e.RWParty("C", name, ttl)
	a.Share()
	w.Start(e.Context())
	time.Sleep(3 * e.Settle()) // it waits
	reader := c.StartShare(e.Context())
	fail(w)
	c.Granted(reader, ttl+party.Slack(ttl)+2*time.Second, "A has a share, and B, which waited "+
		"for the lock before it with a TTL of %v, is heard of no more", ttl).Release()
	a.Prolong().Release()
}
