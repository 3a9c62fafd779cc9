// Package exclusion has the scenarios of mutual exclusion without faults: of Lock, of TryLock, and
// of a Locker that goroutines share.
package exclusion

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/contention"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
)

// Rows are the scenarios of two parties that contend for a lock.
var Rows = []scenario.Row{{
	Name:    "a held lock is not granted to another process",
	Promise: "A lock is held by at most one holder, and Unlock lets in the next.",
	Shows:   locker.Exclusive,
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		excludeEachOther(e, a, b)
	},
}, {
	Name:    "a held lock is not granted to the same client",
	Promise: "Two Lockers of one name contend whether or not they share a client, a connection or a session.",
	Sources: []string{source.MutexSession},
	Shows:   locker.Exclusive,
	Needs:   []need.Need{need.Clients},
	Body: func(e *party.Env) {
		name := e.Name()
		of := e.Client(e.Long, false)
		excludeEachOther(e, of("A", name), of("B", name))
	},
}, {
	Name:    "a Locker is not reentrant",
	Promise: "A Locker is not reentrant: a second Lock of the holder waits like any other.",
	Shows:   locker.Exclusive,
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.Long)
		a.Take()
		token := a.Token()
		start := time.Now()
		err := a.LockWithin(e.Prompt / 4)
		switch {
		case errors.Is(err, locker.ErrLost):
			e.Doubtf("A's hold was lost after %v: %v", time.Since(start), err)
		case err == nil:
			e.Failf("A's second Lock succeeded while A held the lock")
		}
		a.Prolong()
		a.KeepsToken(token, "after a second Lock that failed (%v)", err)
		a.Release()
	},
}, {
	Name:    "many processes exclude one another",
	Promise: "A lock is held by at most one holder among many processes.",
	Shows:   locker.Exclusive,
	Chance:  true,
	Body:    func(e *party.Env) { contention.Disjoint(e, contention.Run(e, e.Processes(e.Name()), contention.Dwell)) },
}, {
	Name:    "many Lockers of one client exclude one another",
	Promise: "Two Lockers of one name contend whether or not they share a client, a connection or a session.",
	Sources: []string{source.MutexSession},
	Shows:   locker.Exclusive,
	Chance:  true,
	Needs:   []need.Need{need.Clients},
	Body: func(e *party.Env) {
		name := e.Name()
		of := e.Client(e.Long, false)
		parties := make([]*party.Party, party.Contenders)
		for i := range parties {
			parties[i] = of(fmt.Sprintf("Locker %d", i+1), name)
		}
		contention.Disjoint(e, contention.Run(e, parties, contention.Dwell))
	},
}, {
	Name:    "many goroutines on one Locker exclude one another",
	Promise: "A Locker may be used by several goroutines: each Lock contends, each success needs one Unlock.",
	Shows:   locker.Exclusive,
	Chance:  true,
	Body: func(e *party.Env) {
		contention.Disjoint(e, contention.Run(e, party.Sharers(e.Party("A", e.Name(), e.Long)), contention.Dwell))
	},
}}

func excludeEachOther(e *party.Env, a, b *party.Party) {
	a.Take()
	a.Excludes(b, e.Settle())
	a.Release()
	b.Promptly("A has unlocked")
	b.Excludes(a, e.Settle())
	b.Release()
	a.Promptly("A and B have unlocked").Release()
}

// Try are the scenarios of TryLock.
var Try = []scenario.Row{{
	Name: "TryLock of a held lock says ErrHeld",
	Promise: "TryLock makes one attempt, and does not wait for the holder. It returns an error " +
		"that matches ErrHeld if the lock is another's.",
	Sources: []string{source.MostErrors},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		a.Take()
		for _, p := range []*party.Party{b, a} { // the holder's own Locker is as any other
			start := time.Now()
			err := p.Try()
			took := time.Since(start)
			if err == nil {
				a.Overlap(p)
			}
			if took > e.Prompt {
				e.Doubtf("%s's TryLock of a held lock took %v", p.Who, took)
			}
			if errors.Is(err, locker.ErrLost) {
				e.Doubtf("%s's TryLock: %v", p.Who, err)
			}
			p.Want("TryLock of a held lock", err, locker.ErrHeld)
		}
		b.WantNoToken("after a TryLock that failed")
		a.Release()
	},
}, {
	Name:    "TryLock takes a free lock",
	Promise: "TryLock takes a free lock, each time. A hold taken by it is like one taken by Lock.",
	Body: func(e *party.Env) {
		triesAlone(e)
		a, b := e.Rivals(e.Long, e.Long)
		if err := a.Try(); err != nil {
			e.Doubtf("A's TryLock of a free lock: %v", err)
		}
		a.Excludes(b, e.Settle())
		a.Prolong().Release()
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			err := b.Try() // what B's Lock, which gave up, left behind may take a moment to go
			if err == nil {
				break
			}
			if time.Since(start) > e.Prompt {
				e.Doubtf("B's TryLock of a lock that A has unlocked: %v", err)
			}
		}
		b.Release()
	},
}, {
	Name:    "TryLock heeds a ctx that has ended",
	Promise: "When ctx has ended TryLock fails with an error that matches ctx.Err() and context.Cause(ctx), and holds nothing.",
	Sources: []string{source.GoContext},
	Needs:   []need.Need{need.Cancels},
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.Long)
		ctx, cancel := context.WithCancelCause(e.Context())
		cancel(party.ErrStop)
		err := a.TryLock(ctx)
		if engine.IsSkip(err) {
			e.Skip("the Locker has no TryLock")
		}
		a.Want("TryLock with a cancelled ctx", err, context.Canceled)
		a.Want("TryLock with a cancelled ctx", err, party.ErrStop)
		a.Want("Unlock after a TryLock that failed", a.Unlock(), locker.ErrNotHeld)
	},
}}

// triesAlone has nobody else want the lock.
func triesAlone(e *party.Env) {
	a := e.Party("A", e.Name(), e.Long)
	for n, end := 1, time.Now().Add(e.Prompt); n <= 50 && time.Now().Before(end); n++ {
		if err := a.Try(); errors.Is(err, locker.ErrHeld) {
			e.Doubtf("A's TryLock number %d: %v; nobody else wants the lock, and each Unlock before said nil", n, err)
		} else if err != nil {
			return // only ErrHeld speaks of another
		}
		if a.Unlock() != nil {
			return // in doubt it may be held yet
		}
	}
}

// Sharing are the scenarios of goroutines that share a Locker.
var Sharing = []scenario.Row{{
	Name:    "a goroutine that waits does not disturb the hold of another on the same Locker",
	Promise: "A Locker may be used by several goroutines: one that waits does not affect the hold of another.",
	Sources: []string{source.RedissonToken},
	Body: func(e *party.Env) {
		name := e.Name()
		a, c := e.Party("A", name, e.Long), e.Party("C", name, e.Long)
		a.Take()
		token := a.Token()
		other := party.Sharers(a)[1]
		ctx, cancel := context.WithCancel(e.Context())
		defer cancel()
		done := other.Start(ctx)
		a.KeepsWaiting(other, done, e.Settle())
		a.Prolong()
		a.KeepsToken(token, "while another goroutine waits in Lock")
		cancel()
		e.Gone(other, done)
		a.Prolong()
		a.Excludes(c, e.Settle())
		a.Release()
		c.Promptly("A has unlocked, the other goroutine gave up").Release()
	},
}, {
	Name:    "nothing is held after many goroutines have locked and unlocked",
	Promise: "Each success of Lock needs one Unlock, and no more.",
	Chance:  true,
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		contention.Run(e, party.Sharers(a), func() {})
		e.Pace.Few.Store(false) // no rare breach is looked for
		e.Pace.Holds.Store(0)
		a.WantNoToken("when each Lock was unlocked")
		a.Want("Unlock, when each Lock was unlocked", a.Unlock(), locker.ErrNotHeld)
		a.Want("Extend, when each Lock was unlocked", a.Extend(), locker.ErrNotHeld)
		b.Promptly("each Lock of A was unlocked").Release()
	},
}, {
	Name:    "a Locker can be asked while others use it",
	Promise: "A Locker may be used by several goroutines: one may call FencingToken and Extend while others lock and unlock.",
	Chance:  true,
	// This is above all for the race detector.
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.Long)
		stop := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
				}
				a.Token()
				a.Lost()
				a.Deadline()
				_ = a.Extend() // with or without a hold
				time.Sleep(100 * time.Microsecond)
			}
		}()
		intervals := contention.Run(e, party.Sharers(a)[:3], contention.Dwell)
		close(stop)
		<-stopped
		contention.Disjoint(e, intervals)
	},
}}
