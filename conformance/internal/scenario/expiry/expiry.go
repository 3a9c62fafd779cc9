// Package expiry has the scenarios of how a hold lasts and ends: of TTLs, Extend, renewal, loss and
// Unlock.
package expiry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/contention"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
)

// Rows are the scenarios of TTLs.
var Rows = []scenario.Row{{
	Name:    "a hold expires after its TTL",
	Promise: "A hold lasts one TTL unless extended; then the lock is free.",
	Sources: []string{source.RedisDocs},
	Needs:   []need.Need{need.Expire},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.TTL)
		a.Take()
		a.AwaitExpiry()
		b.LockBy(e.Prompt, "A's hold is over").Release()
	},
}, {
	Name: "a hold does not expire before its TTL",
	Promise: "A hold lasts one TTL from just before its request was sent. It may be shorter by " +
		"TTL/100 + 2 ms, because clocks run at different speeds.",
	Sources: []string{source.Antirez},
	Needs:   []need.Need{need.Expire},
	// It is measured from before A's client was made: its holds may share a session that is as old.
	Body: func(e *party.Env) {
		name := e.Name()
		b := e.Party("B", name, e.Long)
		before := time.Now()
		a := e.Party("A", name, e.TTL)
		a.TakeOver(b)
		if held := time.Since(before); held < e.TTL-party.Drift(e.TTL) {
			e.Doubtf("B got the lock %v after A asked for it, for %v", held, e.TTL)
		}
		b.Release()
	},
}, {
	Name:    "nobody gets the lock before the holder's Deadline",
	Promise: "While a hold is not lost, and its Deadline has not passed, nobody else holds the lock.",
	Sources: []string{source.Antirez, source.Chubby},
	Shows:   locker.Exclusive,
	Needs:   []need.Need{need.Expire},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.Long)
		a.TellsDeadline()
		a.Take()
		deadline := a.Deadline()
		lost := a.Lost()
		b.LockBy(e.TTL+e.Patience, "A's TTL of %v is over", e.TTL)
		got := time.Now()
		told := ""
		select {
		case <-lost: // in time, or for a reason that the contract allows
			told = "; Lost has fired"
		default:
		}
		if early := deadline.Sub(got); early > 0 {
			e.Doubtf("B got the lock %v before A's Deadline%s", early, told)
		}
		b.Release()
	},
}, {
	Name:    "a TTL that is no round number is kept as it is",
	Promise: "A hold lasts one TTL: a TTL that the backend cannot keep is refused, not rounded down.",
	Needs:   []need.Need{need.Expire},
	// B retries short Locks until the TTL is nearly over, because a waiter may poll rarely.
	Body: func(e *party.Env) {
		name, ttl := e.Name(), uneven(e.TTL)
		b := e.Party("B", name, e.Long)
		before := time.Now()
		if _, refusal := offered(e, "A", name, ttl); refusal != "" {
			e.Skip(refusal)
		}
		granted, least := time.Now(), ttl-party.Drift(ttl)
		err := b.LockWithin(party.Settle / 2)
		for err != nil && time.Since(before) < least {
			err = b.LockWithin(party.Settle / 2)
		}
		if err != nil {
			err = b.LockWithin(time.Until(granted.Add(ttl + time.Second + party.Slack(ttl))))
		}
		if err != nil {
			e.Doubtf("B's Lock, %v after A took the lock for %v and was heard of no more: %v", time.Since(granted), ttl, err)
		}
		if held := time.Since(before); held < least {
			e.Doubtf("B got the lock %v after A asked for it, for %v", held, ttl)
		}
		b.Release()
	},
}, {
	Name:    "a long TTL is kept as it is",
	Promise: "A hold lasts one TTL: a TTL that is too long for the backend is refused, not shortened.",
	Sources: []string{source.OwnPrograms},
	Aside:   true,
	Needs:   []need.Need{need.Expire},
	Body: func(e *party.Env) {
		looks := func(ttl, look time.Duration) func() {
			return func() {
				e, name := e.Story(), e.Name()
				b := e.Party("B", name, e.Long)
				a, refusal := offered(e, "A", name, e.Lifetime(ttl))
				switch {
				case refusal == "":
					a.Excludes(b, look)
					a.Drop()
				case ttl < wraps[0]:
					e.Skip(refusal)
				}
			}
		}
		stories := []func(){looks(max(longTTL, e.Long), longLook)}
		for _, ttl := range wraps {
			stories = append(stories, looks(ttl, longLook/4))
		}
		e.Together(stories...)
	},
}, {
	Name:    "those who find an expired hold exclude one another",
	Promise: "When a hold has expired one of those who want the lock gets it, however many find that at the same moment.",
	Sources: []string{source.OwnPrograms},
	Shows:   locker.Exclusive,
	Chance:  true,
	Aside:   true,
	Needs:   []need.Need{need.Expire},
	// Waiters wait for the expiry of a hold and, in every other round, arrive all at once after it.
	Body: func(e *party.Env) {
		const rounds = 10
		name := e.Name()
		a, waiters := e.Party("A", name, e.TTL), e.Processes(name)
		end := time.Now().Add(party.HalfMinute)
		for round := range rounds {
			if time.Now().After(end) {
				break
			}
			a.Take()
			if round%2 == 1 {
				a.AwaitExpiry()
			}
			contention.Disjoint(e, contention.Queue(e, waiters)())
			_ = a.Unlock()
		}
	},
}, {
	Name:    "half a minute ends no hold that is extended, no wait, and no order of tokens",
	Promise: "Time alone changes nothing: a hold that is extended lasts, Lock waits, and the tokens of a name that was idle go on rising.",
	Sources: []string{source.OwnPrograms},
	Aside:   true,
	Body: func(e *party.Env) {
		e.Together(func() {
			// B waits for half a minute while A extends its hold or, if it cannot, has a hold that
			// lasts longer.
			e := e.Story()
			name, ttl := e.Name(), e.Lifetime(6*time.Second)
			if !need.Extends.Met(e.Harness) {
				ttl = e.Lifetime(2 * party.HalfMinute)
			}
			b := e.Party("B", name, ttl)
			a, refusal := offered(e, "A", name, ttl)
			if refusal != "" {
				e.Logf("%s", refusal)
				return
			}
			ctx, cancel := context.WithTimeout(e.Context(), party.HalfMinute+e.Patience)
			defer cancel()
			done := b.Start(ctx)
			for end := time.Now().Add(party.HalfMinute); time.Now().Before(end); {
				a.Prolong()
				a.KeepsWaiting(b, done, ttl/8)
			}
			a.Release()
			b.Granted(done, e.Prompt, "A has unlocked").Release()
		}, func() {
			// The lock is idle for half a minute between two holds.
			e := e.Story()
			a, b := e.Rivals(e.Long, e.Long)
			var held party.Sequence
			a.Take()
			if !need.Tokens.Met(e.Harness) || a.Token() == 0 { // that it has none is another promise
				return
			}
			held.Next(a, "A's hold")
			a.Release()
			party.SleepUntil(e.Context(), party.HalfMinute)
			b.Take()
			held.Next(b, fmt.Sprintf("B's hold, %v later,", party.HalfMinute))
			b.Release()
		})
	},
}}

// Extend are the scenarios of Extend.
var Extend = []scenario.Row{{
	Name:    "Extend keeps a hold past its TTL",
	Promise: "Extend makes the hold last one TTL from now.",
	Needs:   []need.Need{need.Extends, need.Expire},
	Body: func(e *party.Env) {
		// A pause of the machine must not end the hold.
		name, ttl := e.Name(), e.Lifetime(400*time.Millisecond)
		a, b := e.Party("A", name, ttl), e.Party("B", name, ttl)
		a.Take()
		done := b.Start(e.Context())
		for end := time.Now().Add(2 * ttl); time.Now().Before(end); {
			a.Prolong()
			a.KeepsWaiting(b, done, ttl/4)
		}
		a.Release()
		b.Served(done)
		b.Release()
	},
}, {
	Name:    "an extended hold lasts one TTL from its Extend, and no longer",
	Promise: "Extend makes the hold last one TTL from now.",
	Needs:   []need.Need{need.Extends, need.Expire},
	// The holder crashes after several Extends in a row at half its TTL, which must not add up.
	Body: func(e *party.Env) {
		name, ttl := e.Name(), e.Lifetime(400*time.Millisecond)
		a, b := e.Party("A", name, ttl), e.Party("B", name, ttl)
		a.Take()
		time.Sleep(ttl / 2)
		var before time.Time
		for range 4 {
			before = time.Now()
			a.Prolong()
		}
		least := ttl - party.Drift(ttl)
		// A session's TTL may count from an earlier heartbeat.
		if deadline := a.Deadline(); !deadline.IsZero() {
			e.Within(a, "Extend")
			least = min(least, deadline.Sub(before))
		}
		b.LockBy(ttl+party.Slack(ttl), "A, whose TTL is %v, called the last Extend of four and was heard of no more", ttl)
		if held := time.Since(before); held < least {
			e.Doubtf("B got the lock %v after A's Extend, with a TTL of %v; it was to last for %v at least", held, ttl, least)
		}
		b.Release()
	},
}, {
	Name:    "Extend of a hold that expired says ErrLost and does not revive it",
	Promise: "Extend never revives a hold that ended.",
	Sources: []string{source.RedisDocs},
	Needs:   []need.Need{need.Extends, need.Expire},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.TTL)
		a.Take()
		a.AwaitExpiry()
		err := a.Extend()
		a.Want("Extend after its TTL", err, locker.ErrLost)
		b.LockBy(e.Prompt, "A's Extend said ErrLost")
		a.Want("Extend after a take-over", a.Extend(), locker.ErrLost)
		b.Release()
	},
}, {
	Name:    "Extend after a take-over says ErrLost",
	Promise: "Extend says ErrLost if another has taken the lock.",
	Sources: []string{source.RedisDocs},
	Needs:   []need.Need{need.Extends, need.Expire},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.Long)
		a.TakeOver(b)
		a.Want("Extend after B took the lock", a.Extend(), locker.ErrLost)
		b.Release()
		a.Want("Extend after B took and unlocked the lock", a.Extend(), locker.ErrLost)
	},
}, {
	Name:    "Extend after a take-over leaves the new hold alone",
	Promise: "Extend acts on the caller's hold alone, never on another owner's.",
	Sources: []string{source.RedisDocs},
	Needs:   []need.Need{need.Extends, need.Expire},
	// B's hold must not get A's TTL.
	Body: func(e *party.Env) { e.Harmless("Extend", (*party.Party).Extend, 2*e.TTL) },
}, {
	Name:    "Extend without a hold says ErrNotHeld",
	Promise: "Extend says ErrNotHeld without a hold: before Lock, and after Unlock.",
	Sources: []string{source.MostErrors},
	Needs:   []need.Need{need.Extends},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		a.Want("Extend before Lock", a.Extend(), locker.ErrNotHeld)
		a.Take()
		a.Release()
		a.Want("Extend after Unlock", a.Extend(), locker.ErrNotHeld)
		b.Promptly("A's Extend said ErrNotHeld")
		a.Want("Extend after Unlock, when B has the lock", a.Extend(), locker.ErrNotHeld)
		b.Prolong().Release()
	},
}}

// uneven returns a TTL above the shortest that becomes shorter if it is truncated to tenths of a
// second or to multiples of the shortest, or truncated or rounded to seconds: by enough to be seen
// on a busy machine.
func uneven(shortest time.Duration) time.Duration {
	const tenth, above = time.Second / 10, time.Second / 4
	first := max(shortest, time.Second).Truncate(tenth) + tenth*17/20
	for ttl := first; ttl < 3*first; ttl += tenth {
		seconds, multiples := ttl%time.Second, ttl%shortest
		if ttl > shortest && seconds > above && seconds < time.Second/2 && multiples >= min(above, shortest/2) {
			return ttl
		}
	}
	// The shortest TTL is so short that truncation to its multiples hardly matters.
	return first.Truncate(time.Second) + time.Second + above + tenth*7/20
}

// A TTL above the limits that implementers are likely to set, and for how long its hold is watched:
// half of it is assured.
const (
	longTTL  = 24 * time.Second
	longLook = 11 * time.Second
)

// wraps are TTLs that overflow 32-bit milliseconds or microseconds, and so become short or
// negative.
var wraps = []time.Duration{time.Hour, 1<<32*time.Microsecond + time.Second, 30 * 24 * time.Hour, 1<<32*time.Millisecond + time.Second}

// offered makes a party with a TTL that the harness or the Locker may refuse, and takes the lock.
// It returns the party, or the refusal.
func offered(e *party.Env, who, name string, ttl time.Duration) (_ *party.Party, refusal string) {
	a, refusal := e.Offer(who, name, ttl)
	if a == nil {
		return nil, "the Harness makes no Locker with a TTL of " + ttl.String() + ". The error: " + refusal
	}
	ctx, cancel := context.WithTimeout(e.Context(), e.Patience)
	defer cancel()
	err := a.Noted(func() error { return a.Call("Lock", 2*e.Patience, func() error { return a.Locker.Lock(ctx) }) })
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, locker.ErrHeld):
		e.Doubtf("%s's Lock of a free lock, for %v: %v", who, ttl, err)
	case err != nil:
		return nil, "the Locker refuses a TTL of " + ttl.String() + ": " + err.Error()
	}
	return a, ""
}
