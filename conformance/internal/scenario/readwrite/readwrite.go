// Package readwrite has the scenarios of read-write locks.
package readwrite

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// sharing returns rows each of which needs an RWLocker, too.
func sharing(rows []scenario.Row) []scenario.Row {
	for i := range rows {
		rows[i].Needs = append([]need.Need{need.ReadsWrites}, rows[i].Needs...)
	}
	return rows
}

// Rows are the scenarios of shares.
var Rows = sharing([]scenario.Row{{
	Name:    "readers share the lock",
	Promise: "Any number of readers hold a share at the same time.",
	Sources: []string{source.GoRWMutex, source.Curator},
	Body: func(e *party.Env) {
		all := e.RWParties(manyReaders)
		last := all[manyReaders-1]
		for i, p := range all[:manyReaders-1] {
			p.ShareAfter(fmt.Sprintf("%d others have shares, and nobody wants the lock", i))
		}
		if err := last.TryRLock(); err != nil {
			e.Doubtf("%s's TryRLock, beside %d shares: %v", last.Who, manyReaders-1, err)
		}
		for _, p := range all {
			p.Prolong()
		}
		for _, p := range all {
			p.Release()
		}
		last.Promptly("each share was unlocked").Release()
	},
}, {
	Name: "readers keep a writer out until the last of them has gone",
	Promise: "Lock waits until each share has ended, and no longer. Unlock ends the caller's " +
		"share, never another's, however often it is called.",
	Sources: []string{source.GoRWMutex, source.RedissonShares},
	Body: func(e *party.Env) {
		a, b, w := e.RWTrio(e.Long)
		a.Share()
		b.Share()
		done := w.StartLock(e.Context())
		a.KeepsOut(w, "Lock", done)
		a.Release()
		a.Want("second Unlock of its share", a.Unlock(), locker.ErrNotHeld)
		b.KeepsOut(w, "Lock", done)
		b.Prolong().Release()
		w.Granted(done, e.Prompt, "the last share was unlocked")
		w.Prolong().Release()
	},
}, {
	Name:    "a writer keeps readers out",
	Promise: "No share is granted while a writer holds the lock.",
	Sources: []string{source.GoRWMutex},
	Body: func(e *party.Env) {
		w, a, b := e.RWTrio(e.Long)
		w.Take()
		w.ExcludesShare(a)
		first, second := a.StartShare(e.Context()), b.StartShare(e.Context())
		w.KeepsOut(a, "RLock", first)
		w.KeepsOut(b, "RLock", second)
		w.Release()
		a.Granted(first, e.Prompt, "the writer has unlocked")
		b.Granted(second, e.Prompt, "the writer has unlocked")
		a.Release()
		b.Release()
	},
}, {
	Name:    "a plain lock of the name and shares exclude each other",
	Promise: "A plain lock is a writer: it and the shares of its name exclude each other.",
	Body: func(e *party.Env) {
		name := e.Name()
		plain, a := e.Party("the plain lock", name, e.Long), e.RWParty("A", name, e.Long)
		plain.Take()
		plain.ExcludesShare(a)
		plain.Release()
		a.ShareAfter("the plain lock was unlocked")
		a.Excludes(plain, e.Settle())
		a.Release()
		plain.Promptly("A has unlocked its share").Release()
	},
}, {
	Name:    "shares held at the same time have one token, between those of the writers",
	Promise: "Shares held at the same time have one token, above that of the writer before them and below that of the writer after them.",
	Sources: []string{source.Kleppmann},
	Body: func(e *party.Env) {
		all := e.RWParties(manyReaders)
		a, b, w, rest := all[0], all[1], all[2], all[3:]
		w.Take()
		var tokens party.Sequence
		tokens.Next(w, "the writer before")
		w.Release()
		a.Share()
		phase := tokens.Next(a, "A's share")
		for _, p := range append(rest, b) {
			p.Share()
			p.Same(phase, "A's share, held at the same time, has it")
		}
		for _, p := range append(rest, a) {
			p.Release()
		}
		a.Share()
		a.Same(phase, "B's share, held at the same time, has it")
		a.Release()
		b.Release()
		b.Share()
		if later := b.SomeToken("B's later share"); later != phase { // which need not be another
			tokens.Next(b, "B's later share")
		}
		b.Release()
		w.Promptly("each share was unlocked")
		tokens.Next(w, "the writer after")
		w.Release()
	},
}, {
	Name: "a share expires after its own TTL though others extend theirs",
	Promise: "Each share expires by itself, one TTL after its last Extend, however long the " +
		"others last. Then Unlock ends no other's.",
	Sources: []string{source.RedissonShares},
	Body: func(e *party.Env) {
		e.Together(func() {
			// The writer waits from the beginning: somebody has to notice that the time of a share
			// is over.
			before, ttl := time.Now(), e.Lifetime(1200*time.Millisecond) // longer than slack
			a, b, w := e.RWTrio(ttl)
			a.Share()
			b.Share()
			done := w.StartLock(e.Context())
			b.Prolong().Release()
			w.Granted(done, ttl+party.Slack(ttl), "A took a share for %v and was heard of no more, B has unlocked", ttl)
			if held := time.Since(before); held < ttl-party.Drift(ttl) {
				e.Doubtf("C got the lock %v after A asked for a share, for %v", held, ttl)
			}
			w.Release()
		}, func() {
			// The share that lasts longer is the first: neither the take nor an Extend of another
			// cuts it, nor the late Unlock.
			a, b, w := e.RWTrio(e.TTL)
			b.Share()
			a.Share()
			a.Prolong()
			a.AwaitExpiry()
			_ = a.Unlock()
			b.Excludes(w, e.Settle())
			b.Prolong().Release()
			w.LockBy(e.Prompt, "B has unlocked, A's share has expired").Release()
		})
	},
}, {
	Name:    "a share that expired is lost, and its holder knows",
	Promise: "A share that nobody extends is lost after its TTL, as every hold is: no Extend revives it.",
	Sources: []string{source.MostNews},
	Body: func(e *party.Env) {
		e.Together(func() {
			name := e.Name()
			a, w := e.RWParty("A", name, e.TTL), e.RWParty("B", name, e.Long)
			a.Share()
			deadline := a.Deadline()
			w.LockBy(e.TTL+e.Patience, "A's TTL of %v is over", e.TTL)
			if early := time.Until(deadline); early > 0 {
				e.Doubtf("B got the lock %v before the Deadline of A's share", early)
			}
			a.AwaitExpiry()
			a.WantNoToken("after the TTL of its share, when B has the lock")
			a.Want("Extend of a share that expired", a.Extend(), locker.ErrLost)
			a.Want("Unlock of a share that expired", a.Unlock(), locker.ErrLost)
			w.Prolong().Release()
		}, func() {
			// Another reader stays: the lock is shared yet when the share has expired.
			a, b, w := e.RWTrio(e.TTL)
			b.Share()
			a.Share()
			a.AwaitExpiry()
			a.Want("Extend of a share that expired, while B has one", a.Extend(), locker.ErrLost)
			b.Release()
			a.Want("Extend of a share that expired, when the lock is free", a.Extend(), locker.ErrLost)
			w.Promptly("B has unlocked, A's share has expired").Release()
		})
	},
}, {
	Name:    "a TryLock that fails keeps no reader out",
	Promise: "TryLock makes one attempt, and an attempt that failed leaves nothing behind: no reader waits for it.",
	Sources: []string{source.GoRWMutex, source.ZkShared},
	Body: func(e *party.Env) {
		a, b, w := e.RWTrio(e.Long)
		a.Share()
		err := w.Try()
		if err == nil {
			a.OverlapOf("TryLock", w)
		}
		w.Want("TryLock of a lock of which A has a share", err, locker.ErrHeld)
		b.ShareAfter("A has a share, and C's TryLock has failed")
		b.Release()
		if err := b.TryRLock(); err != nil {
			e.Doubtf("B's TryRLock, beside A's share, when C's TryLock has failed: %v", err)
		}
		b.Release()
		a.Release()
	},
}, {
	Name:    "an upgrade is refused at once, and the share stays",
	Promise: "If the caller holds a share, Lock and TryLock return an error, and do not wait for this share.",
	Sources: []string{source.GoRWMutex, source.RedissonShares},
	Body: func(e *party.Env) {
		a, b, w := e.RWTrio(e.Long)
		a.Share()
		token := a.Token()
		start := time.Now()
		err := a.LockWithin(2 * e.Prompt)
		if took := time.Since(start); err == nil || took > e.Prompt {
			e.Doubtf("the Lock of A, whose own hold is a share, returned after %v: %s; want an error at once", took, party.Says(err))
		}
		if err := a.TryLock(e.Context()); err == nil {
			e.Doubtf("the TryLock of A, whose own hold is a share, succeeded")
		}
		a.Prolong()
		a.Same(token, "a Lock that was refused changes nothing")
		b.ShareAfter("A's Lock was refused")
		a.Excludes(w, e.Settle())
		a.Release()
		b.Excludes(w, e.Settle())
		b.Release()
		w.Promptly("each share was unlocked").Release()
	},
}, {
	Name:    "a downgrade keeps the hold and its token",
	Promise: "Downgrade makes the hold a share: it lasts, is extended and is unlocked as before, and its token stays.",
	Body: func(e *party.Env) {
		e.Together(func() {
			a, b, w := e.RWTrio(e.Long)
			a.MayDowngrade()
			a.Take()
			var tokens party.Sequence
			token := tokens.Next(a, "A's hold")
			a.Weaken()
			a.Same(token, "the hold had it before its Downgrade")
			a.Prolong()
			b.ShareAfter("A has made its hold a share")
			b.Same(token, "A's share, which was the lock before, has it")
			b.Release()
			a.Excludes(w, e.Settle())
			a.Prolong().Release()
			w.Promptly("A has unlocked")
			tokens.Next(w, "the writer after")
			w.Release()
		}, func() {
			// The holder crashes after its Downgrade.
			name, ttl := e.Name(), e.Lifetime(1200*time.Millisecond) // longer than slack
			a, w := e.RWParty("A", name, ttl), e.Party("C", name, e.Long)
			a.MayDowngrade()
			before := time.Now()
			a.Take()
			a.Weaken()
			w.LockBy(ttl+party.Slack(ttl), "A, whose TTL is %v, has made its hold a share and was heard of no more", ttl)
			if held := time.Since(before); held < ttl-party.Drift(ttl) {
				e.Doubtf("C got the lock %v after A asked for it, for %v, and made it a share", held, ttl)
			}
			w.Release()
		})
	},
}, {
	Name:    "a downgrade lets readers in and keeps writers out",
	Promise: "Downgrade lets in the readers at the head of the queue, and nobody holds the lock alone until all have gone.",
	Sources: []string{source.Curator},
	// A writer is in the queue behind the readers, where there is one: where there is none a writer
	// may go first.
	Body: func(e *party.Env) {
		all := e.RWParties(4)
		a, b, c, w := all[0], all[1], all[2], all[3]
		a.MayDowngrade()
		a.Take()
		first, second := b.StartShare(e.Context()), c.StartShare(e.Context())
		var writer <-chan error
		if e.Harness.HasQueue() {
			writer = w.StartLock(e.Context())
		}
		a.Weaken()
		b.Granted(first, e.Prompt, "A has made its hold a share")
		c.Granted(second, e.Prompt, "A has made its hold a share")
		if writer == nil {
			writer = w.StartLock(e.Context())
		}
		a.KeepsOut(w, "Lock", writer)
		a.Release()
		b.Release()
		c.KeepsOut(w, "Lock", writer)
		c.Release()
		w.Granted(writer, e.Prompt, "each share was unlocked").Release()
	},
}, {
	Name:    "a downgrade lets no writer in between",
	Promise: "Downgrade is one step: nobody holds the lock alone between the hold and the share that it becomes.",
	Body: func(e *party.Env) {
		e.Together(func() {
			a, b, w := e.RWTrio(e.Long)
			a.MayDowngrade()
			a.Take()
			writer := w.StartLock(e.Context())
			var reader <-chan error
			if e.Harness.HasQueue() {
				reader = b.StartShare(e.Context())
			}
			a.Weaken()
			a.KeepsOut(w, "Lock", writer)
			if reader != nil {
				b.Queued(reader, "C, who waits for A")
			}
			a.Prolong().Release()
			w.Granted(writer, e.Prompt, "A has unlocked").Release()
			if reader != nil {
				b.Granted(reader, e.Prompt, "C has unlocked").Release()
			}
		}, func() {
			// A writer wants the lock again and again, so that it finds the shortest gap.
			e := e.Story()
			a, _, w := e.RWTrio(e.Long)
			a.MayDowngrade()
			ctx, cancel := context.WithTimeout(e.Context(), contention.Time/2)
			defer cancel()
			c := &contention.Contest{Env: e, Ctx: ctx, Work: contention.Linger}
			done := make(chan struct{})
			e.Spawn(func() {
				defer close(done)
				for ctx.Err() == nil {
					if w.Lock(ctx) == nil {
						c.Hold(w)
					}
				}
			})
			var held []contention.Interval
			for ctx.Err() == nil {
				a.Take()
				t := contention.Interval{Who: a.Who, From: time.Now()}
				a.Weaken()
				if t.To = time.Now(); a.Until().Before(t.To) {
					t.To = a.Until()
				}
				held = append(held, t)
				a.Drop()
			}
			<-done
			contention.Disjoint(e, append(held, c.Intervals...))
		})
	},
}, {
	Name:    "a downgrade of a lost hold says ErrLost, and leaves the new hold alone",
	Promise: "Downgrade acts on the caller's hold alone, never on another owner's.",
	Sources: []string{source.RedissonShares},
	Needs:   []need.Need{need.Expire},
	Body: func(e *party.Env) {
		a, b, c := e.RWTrio(e.TTL)
		a.MayDowngrade()
		a.TakeOver(b)
		err := a.Downgrade()
		if errors.Is(err, locker.ErrUnsupported) {
			e.Skip(fmt.Sprintf("the RWLocker does not downgrade: %v", err))
		}
		b.ExcludesShare(c)
		a.Want("Downgrade after B took the lock", err, locker.ErrLost)
		_ = a.Unlock()
		a.Want("Downgrade after Unlock", a.Downgrade(), locker.ErrNotHeld)
		b.ExcludesShare(c)
		b.Prolong().Release()
	},
}, {
	Name:    "a downgrade whose reply was lost can be sent again",
	Promise: "After an error of Downgrade other than ErrLost, the hold goes on, shared or exclusive, and a second Downgrade succeeds.",
	Sources: []string{source.RedislockReply},
	Needs:   []need.Need{need.Links},
	// The link is mended while A downgrades.
	Body: func(e *party.Env) {
		a, w := fault.Linked(e, "A", e.Name(), e.Long)
		if _, ok := a.Locker.(power.Sharer); !ok {
			e.Skip("what Faults.Through returns is no RWLocker")
		}
		b, c := e.RWParty("B", a.Name, e.Long), e.RWParty("C", a.Name, e.Long)
		a.MayDowngrade()
		a.Take()
		token := a.SomeToken("A's hold")
		w.LoseReplies()
		stop := time.AfterFunc(party.Settle, w.Mend)
		defer stop.Stop()
		err := a.Downgrade()
		for end := time.Now().Add(e.Prompt); err != nil && time.Now().Before(end); time.Sleep(party.Settle / 10) {
			if errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrUnsupported) {
				break
			}
			err = a.Downgrade()
		}
		a.Downgraded(err)
		b.ShareAfter("A has made its hold a share")
		b.Same(token, "A's share, which was the lock before, has it")
		a.Same(token, "the hold had it before its Downgrade")
		b.Release()
		a.Prolong()
		a.Excludes(c, e.Settle())
		a.Release()
		c.Promptly("A has unlocked").Release()
	},
}, {
	Name:      "tokens rise from a writer to a share though the server that lags most takes over",
	Promise:   "Tokens rise even if data are lost: the token of a share is larger than the tokens of all writers before it.",
	Sources:   []string{source.CallMe, source.Kleppmann},
	Needs:     []need.Need{need.FailsOver, need.Tokens},
	Shows:     locker.FencingDurable,
	Condition: "failover",
	// The server that takes over knows of an earlier share, and not of the writer that came
	// between.
	Body: func(e *party.Env) {
		a, w, c := e.RWTrio(e.Long)
		a.Share()
		a.Release()
		fail := fault.FailOver(e)
		w.Take()
		last := w.Token()
		w.Release()
		fail()
		e.Using(power.Sharing{Sharer: c.RW}, c.Who, c.Name, c.TTL).TakesAbove(last, "B has unlocked, and a server took over")
	},
}})

// manyReaders is how many readers hold shares at the same time.
const manyReaders = 12

// readerRows repeat scenarios of faults with a reader as the party that the fault is about. All
// others want the lock exclusively.
var readerRows = []readerRow{
	{"a share whose reply was lost leaves nothing behind", "A", "a take whose reply was lost leaves nothing behind"},
	{
		"an RLock whose replies are lost for a while is not held up by itself", "A",
		"a Lock whose replies are lost for a while is not held up by itself",
	},
	{"an Unlock of a share whose reply was lost has freed the lock", "A", "an Unlock whose reply was lost has freed the lock"},
	{"a release of a share that is sent again frees the lock", "A", "a release that is sent again says nil or ErrLost, and frees the lock"},
	{
		"a release that is sent again never says nil if the share had ended", "A",
		"a release that is sent again never says nil if the hold had ended",
	},
	{"an Extend of a share whose reply was lost leaves it as it was", "A", "an Extend whose reply was lost leaves the hold as it was"},
	{"a request for a share that arrives late leaves nothing behind", "A", "a take that arrives late leaves nothing behind"},
	{"a request for a share that arrives more than a TTL late takes nothing", "A", "a take that arrives more than a TTL late takes nothing"},
	{"an Unlock of a share that arrives late leaves the writer alone", "A", "an Unlock that arrives late leaves the new hold alone"},
	{
		"an Unlock of a share that arrives late leaves the next share alone", "A",
		"an Unlock that arrives late leaves the next hold of the same Locker alone",
	},
	{
		"an Extend of a share that arrives late leaves the writer alone", "A",
		"an Extend that arrives late leaves the new hold alone, and revives nothing",
	},
	{
		"a reader that is cut off knows in time, and harms nobody when it is back", "A",
		"a holder that is cut off knows in time, and harms nobody when it is back",
	},
	{"a reader that waits and is cut off does not hold up those behind it", "B", "a waiter that is cut off does not hold up those behind it"},
	{"RLock returns soon after ctx ends though the server is silent", "A", "Lock returns soon after ctx ends though the server is silent"},
	{
		"an RLock that ended while the server was silent leaves nothing behind", "A",
		"a Lock that ended while the server was silent leaves nothing behind",
	},
	{
		"Unlock of a share returns by the deadline though the server is silent", "A",
		"Unlock returns by the deadline though the server is silent",
	},
	{"a reader that was stopped past its TTL knows when it wakes", "A", "a process that was stopped past its TTL knows when it wakes"},
	{"the share of a process that was killed expires", "A", "the hold of a process that was killed expires"},
	{
		"a reader that is killed while it waits does not hold up those behind it", "B",
		"a process that is killed while it waits does not hold up those behind it",
	},
}

// readerRow is a scenario of a fault in which the party called who takes shares. of is the name of
// the scenario for a Locker.
type readerRow struct{ name, who, of string }

// Readers returns the scenarios of readerRows, made of the scenarios for a Locker.
func Readers(told []scenario.Row) []scenario.Row {
	rows := make([]scenario.Row, len(readerRows))
	for i, r := range readerRows {
		row := told[slices.IndexFunc(told, func(row scenario.Row) bool { return row.Name == r.of })]
		body := row.Body
		row.Name = r.name
		row.Promise = "For a share, too: " + row.Promise
		row.Body = func(e *party.Env) {
			e.Reader = r.who
			body(e)
		}
		rows[i] = row
	}
	return sharing(rows)
}
