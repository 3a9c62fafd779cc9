package expiry

import (
	"context"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
)

// Unlock are the scenarios of Unlock.
var Unlock = []scenario.Row{{
	Name:    "Unlock of a hold that expired says ErrLost",
	Promise: "Unlock says ErrLost if the hold ended first, never nil.",
	Sources: []string{source.MutexUnlock, source.MostErrors},
	Needs:   []need.Need{need.Expire},
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.TTL)
		a.Take()
		a.AwaitExpiry()
		a.Want("Unlock after its TTL", a.Unlock(), locker.ErrLost)
	},
}, {
	Name:    "Unlock after a take-over says ErrLost",
	Promise: "Unlock says ErrLost if the hold ended first, never nil.",
	Sources: []string{source.MutexUnlock, source.MostErrors},
	Needs:   []need.Need{need.Expire},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.Long)
		a.TakeOver(b)
		a.Want("Unlock after B took the lock", a.Unlock(), locker.ErrLost)
		b.Release()
	},
}, {
	Name:    "Unlock after a take-over leaves the new hold alone",
	Promise: "Unlock ends the caller's hold, never another owner's.",
	Sources: []string{source.RedisDocs},
	Needs:   []need.Need{need.Expire},
	Body:    func(e *party.Env) { e.Harmless("Unlock", (*party.Party).Unlock, e.Settle()) },
}, {
	Name:    "an Unlock overtaken by the expiry leaves the new hold alone",
	Promise: "Unlock is one atomic step: it ends the caller's hold, never another owner's, at whatever moment the hold expires.",
	Sources: []string{source.RedisDocs},
	Needs:   []need.Need{need.Expire},
	// A unlocks around the expiry. An Unlock that checks the owner in one step and deletes in the
	// next may delete the hold of the next owner.
	Body: func(e *party.Env) {
		// Unlock may begin late.
		for _, left := range []time.Duration{e.TTL * 2 / 3, e.TTL / 3, time.Millisecond} {
			a, b := e.Rivals(e.TTL, e.Long)
			a.Take()
			expiry := time.Now().Add(e.TTL)
			if d := a.Deadline(); !d.IsZero() {
				expiry = d
			}
			took := b.Start(e.Context())
			time.Sleep(time.Until(expiry.Add(-left)))
			unlocked := make(chan error, 1)
			e.Spawn(func() { unlocked <- a.Unlock() })
			b.Served(took)
			e.Steady(a, b, "Unlock", func(*party.Party) error { return <-unlocked }, e.Settle())
		}
	},
}, {
	Name: "a second Unlock says ErrNotHeld",
	Promise: "Unlock says ErrNotHeld without a hold; each success of Lock needs one Unlock, and " +
		"after it the Locker can be locked again.",
	Sources: []string{source.MostErrors},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		a.Want("Unlock before Lock", a.Unlock(), locker.ErrNotHeld)
		for range 3 {
			a.Promptly("A has no hold")
			a.Excludes(b, e.Settle()/2)
			a.Prolong().Release()
			a.Want("second Unlock", a.Unlock(), locker.ErrNotHeld)
		}
		b.Promptly("A has unlocked for the last time").Release()
	},
}, {
	Name:    "Unlock of one Locker leaves the holds of others alone",
	Promise: "Unlock ends the caller's hold, never another owner's.",
	Sources: []string{source.RedisDocs, source.MutexRetry},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		unlock := func(a *party.Party) error {
			err := a.Unlock()
			a.Want("Unlock, when B holds", err, locker.ErrNotHeld)
			return err
		}
		b.Take()
		e.Steady(a, b, "Unlock without Lock", unlock, e.Settle())
		a.Take()
		a.Release()
		b.Take()
		e.Steady(a, b, "second Unlock", unlock, e.Settle())
	},
}, {
	Name:    "Unlock ends the hold though its ctx has ended",
	Promise: "Even if Unlock returns an error, the caller no longer has the hold, and the backend ends it within one TTL.",
	Sources: []string{source.RedsyncCancel},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.TTL)
		a.Take()
		ctx, cancel := context.WithCancel(e.Context())
		cancel()
		err := a.UnlockWith(ctx)
		a.WantNoToken("after Unlock, which returned " + party.Says(err))
		a.Want("second Unlock", a.Unlock(), locker.ErrNotHeld)
		b.LockBy(e.TTL+party.Slack(e.TTL), "A's Unlock had a cancelled ctx").Release()
	},
}}

// Reuse are the scenarios of a Locker that is locked again.
var Reuse = []scenario.Row{{
	Name:    "a Locker can be locked again after a loss and its Unlock",
	Promise: "After the Unlock of a lost hold a Locker can be locked again.",
	Sources: []string{source.ZkDeadlock},
	Needs:   []need.Need{need.Expire},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.Long)
		a.TakeOver(b)
		b.Release()
		_ = a.Unlock() // what it says is the business of another scenario
		a.Promptly("A unlocked its lost hold, B has unlocked too")
		a.Prolong().Release()
	},
}, {
	Name:    "Lock says ErrLost until a lost hold is unlocked",
	Promise: "While a lost hold awaits its Unlock, Lock returns ErrLost at once.",
	Needs:   []need.Need{need.Expire},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.Long)
		a.TakeOver(b)
		for range 2 { // while B holds, and when the lock is free
			start := time.Now()
			a.Want("Lock, when it has not unlocked its lost hold", a.LockWithin(e.Patience), locker.ErrLost)
			if took := time.Since(start); took > e.Prompt {
				e.Doubtf("A's Lock said ErrLost after %v; want at once", took)
			}
			_ = b.Unlock()
		}
		a.Want("Unlock of the lost hold", a.Unlock(), locker.ErrLost)
	},
}}
