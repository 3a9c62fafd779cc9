// Package outage has the scenarios of faults of servers and processes: silence, crashes, failovers,
// and clock jumps.
package outage

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/fault"
	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
)

// Rows are the scenarios of servers that fail.
var Rows = []scenario.Row{{
	Name: "an outage is an error or a wait, never ErrHeld",
	Promise: "A call that begins during an outage returns an error, or waits until ctx ends. It " +
		"never returns ErrHeld, and never waits for ever.",
	Sources: []string{source.MostErrors, source.RueidisErrors},
	Needs:   []need.Need{need.Kills, need.Limits},
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.Long)
		a.Connect()
		restart := fault.Kill(e)
		ctx, cancel := context.WithTimeoutCause(e.Context(), down, party.ErrStop)
		defer cancel()
		start := time.Now()
		err := a.Lock(ctx)
		a.NotTaken("Lock", err, "no server runs")
		if ctx.Err() != nil {
			a.WantEnded("Lock", err, context.DeadlineExceeded, party.ErrStop)
		}
		if took := time.Since(start); took > down+e.Prompt {
			e.Doubtf("A's Lock took %v, with a ctx of %v", took, down)
		}
		if err := a.TryLock(e.Context()); !engine.IsSkip(err) {
			a.NotTaken("TryLock", err, "no server runs")
		}
		restart()
		a.AfterOutage("the server runs again").Release()
	},
}, {
	Name: "a hold ends in time though the server is down",
	Promise: "The holder's process decides by its own clock that a hold is lost, at the latest " +
		"at the deadline, even if the backend cannot be reached. Unlock returns by the deadline.",
	Sources: []string{source.Chubby, source.MostNews},
	Needs:   []need.Need{need.Kills, need.Expire},
	Body: func(e *party.Env) {
		name := e.Name()
		a, b := e.Party("A", name, e.TTL), e.Party("B", e.Name(), e.TTL)
		a.Take()
		b.Take()
		restart := fault.Kill(e)
		start := time.Now()
		b.UnlockFails(start, "no server runs")
		time.Sleep(time.Until(start.Add(e.TTL)))
		if token := a.Token(); token != 0 {
			e.Doubtf("A's token, one TTL of %v after the server ended, is %d; want 0", e.TTL, token)
		}
		restart()
		a.Want("Unlock, past its TTL", a.Unlock(), locker.ErrLost)
		c := e.Party("C", name, e.TTL)
		c.AfterOutage("the server runs again, and A's hold is over").Release()
	},
}, {
	Name: "what the server refuses is not granted, extended or released",
	Promise: "If the server answers with an error, because it has no memory left or is " +
		"read-only, nothing is granted, extended or released: a call that says nil was carried " +
		"out. The error is not ErrHeld.",
	Sources: []string{source.MostErrors, source.RueidisErrors},
	Needs:   []need.Need{need.Refuses},
	// A extends, and C unlocks, while the server refuses requests. A call that returns nil must
	// have been carried out.
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		c := e.Party("C", e.Name(), 2*e.Long)
		d := e.Party("D", c.Name, e.Long)
		a.Take()
		expired := time.Now().Add(e.Long + party.Coarse)
		c.Take()
		time.Sleep(e.Long / 3)
		var extended, unlocked error
		e.Relies(fault.Refuse(e, func() { extended, unlocked = a.Extend(), c.Unlock() }))
		if unlocked == nil {
			d.Promptly("C's Unlock said nil when the server refused requests")
			d.Drop()
		}
		if extended == nil {
			ctx, cancel := context.WithDeadline(e.Context(), expired)
			defer cancel()
			a.Outlasts(ctx, b)
		}
	},
}, {
	Name:    "the lock can be taken after a restart",
	Promise: "What an outage left behind expires within one TTL.",
	Sources: []string{source.ZkRecipe, source.ZkDeadlock},
	Needs:   []need.Need{need.Kills},
	Body: func(e *party.Env) {
		name := e.Name()
		ttl := e.Lifetime(time.Second)
		a, b, c := e.Party("A", name, ttl), e.Party("B", name, ttl), e.Party("C", name, ttl)
		a.Take()
		waiting := b.StartLock(e.Context())
		restart := fault.Kill(e)
		time.Sleep(down)
		restart()
		_ = a.Unlock()
		var err error
		select {
		case err = <-waiting:
		case <-time.After(e.Patience + e.Grace):
			e.Doubtf("%v after a restart, B, who waits, has neither the lock nor an error", e.Patience+e.Grace)
		}
		if err == nil {
			_ = b.Unlock() // nil, or lost
		}
		for _, p := range []*party.Party{c, b, a} {
			p.AfterOutage("the server runs again, and nobody has the lock").Release()
		}
	},
}, {
	Name:      "a hold lasts though the server restarts with its data",
	Promise:   "A lock is held by at most one holder, even if the server crashes.",
	Sources:   []string{source.Redlock, source.Antirez},
	Needs:     []need.Need{need.Kills},
	Shows:     locker.Failover,
	Condition: "the server crashes and keeps its data",
	Body:      func(e *party.Env) { survives(e, func() { fault.Kill(e)() }) },
}, {
	Name:      "tokens rise though the server restarts with its data",
	Promise:   "A hold's token is larger than that of every earlier hold of the name.",
	Sources:   []string{source.Kleppmann},
	Needs:     []need.Need{need.Kills, need.Tokens},
	Shows:     locker.Fencing,
	Condition: "the server crashes and keeps its data",
	Body:      func(e *party.Env) { risesThrough(e, func() { fault.Kill(e)() }) },
}, {
	Name:      "a hold lasts though the server loses its data",
	Promise:   "A lock is held by at most one holder, even if the server loses its data.",
	Sources:   []string{source.Redlock},
	Needs:     []need.Need{need.Wipes},
	Condition: "the server loses its data",
	Body:      func(e *party.Env) { survives(e, func() { fault.Wipe(e)() }) },
}, {
	Name:      "tokens rise though the server loses its data",
	Promise:   "Tokens rise even if data are lost.",
	Sources:   []string{source.Kleppmann},
	Needs:     []need.Need{need.Wipes, need.Tokens},
	Shows:     locker.FencingDurable,
	Condition: "the server loses its data",
	Body:      func(e *party.Env) { risesThrough(e, func() { fault.Wipe(e)() }) },
}, {
	Name:      "a hold lasts though the server that lags most takes over",
	Promise:   "A lock stays exclusive when a server is lost: the server that takes over knows of every hold.",
	Sources:   []string{source.CallMe, source.Redlock},
	Needs:     []need.Need{need.FailsOver},
	Shows:     locker.Failover,
	Condition: "failover",
	Body: func(e *party.Env) {
		if e.Grace > 0 { // the TTL has been in use before, as TTLs usually are
			e.Party("D", e.Name(), 2*e.Long).Take()
		}
		survives(e, fault.FailOver(e))
	},
}, {
	Name:      "tokens rise though the server that lags most takes over",
	Promise:   "Tokens rise even if data are lost.",
	Sources:   []string{source.CallMe, source.Kleppmann},
	Needs:     []need.Need{need.FailsOver, need.Tokens},
	Shows:     locker.FencingDurable,
	Condition: "failover",
	Body:      func(e *party.Env) { risesThrough(e, fault.FailOver(e)) },
}, {
	Name: "Unlock never says nil if a failover forgot the hold",
	Promise: "In doubt Unlock returns ErrLost, never nil: for example, if a server that did not " +
		"know the hold took over, and another owner has the lock.",
	Sources: []string{source.CallMe},
	Needs:   []need.Need{need.FailsOver},
	Body:    func(e *party.Env) { unlocksForgotten(e, false) },
}, {
	Name: "an Unlock that is sent again never says nil if a failover forgot the hold",
	Promise: "A release that is sent again succeeds if the first one was applied. But if a " +
		"server that did not know the hold took over, Unlock returns ErrLost, never nil.",
	Sources: []string{source.CallMe},
	Needs:   []need.Need{need.FailsOver, need.Links},
	Body:    func(e *party.Env) { unlocksForgotten(e, true) },
}, {
	Name:      "a hold lasts though the server's clock jumps forward",
	Promise:   "A hold lasts one TTL, even if a wall clock is set.",
	Sources:   []string{source.Kleppmann, source.Antirez},
	Needs:     []need.Need{need.Clocks},
	Shows:     locker.Exclusive,
	Condition: "the server's clock jumps",
	Body:      func(e *party.Env) { survives(e, func() { fault.MoveClock(e, 4*e.Long) }) },
}, {
	Name:      "a hold expires though the server's clock jumps back",
	Promise:   "A hold lasts one TTL unless extended; then the lock is free.",
	Sources:   []string{source.Kleppmann},
	Needs:     []need.Need{need.Clocks, need.Expire},
	Condition: "the server's clock jumps",
	// The holder crashes, and the clock is set back by which its hold is to expire.
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.TTL)
		a.Take()
		fault.MoveClock(e, -time.Hour)
		if !time.Now().Before(a.Until()) {
			e.Doubtf("A's hold, with a TTL of %v, was over before the clock was set back", e.TTL)
		}
		b.LockBy(e.TTL+party.Slack(e.TTL), "A, whose TTL is %v, was heard of no more", e.TTL).Release()
	},
}, {
	Name:      "tokens rise though the server's clock jumps back",
	Promise:   "A hold's token is larger than that of every earlier hold of the name.",
	Sources:   []string{source.Kleppmann},
	Needs:     []need.Need{need.Clocks, need.Tokens},
	Shows:     locker.Fencing,
	Condition: "the server's clock jumps",
	Body:      func(e *party.Env) { risesThrough(e, func() { fault.MoveClock(e, -time.Hour) }) },
}, {
	Name:      "tokens rise though the server's clock was days ahead for a while",
	Promise:   "A hold's token is larger than that of every earlier hold of the name, even if the server forgets the name.",
	Sources:   []string{source.Kleppmann},
	Needs:     []need.Need{need.Clocks, need.Tokens},
	Shows:     locker.Fencing,
	Condition: "the server's clock jumps",
	// This gives a backend that remembers a name for minutes or hours the chance to forget its last
	// token, which may be days ahead of the corrected clock.
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		c := e.Party("C", e.Name(), e.Long)
		for range 3 {
			a.Take()
			a.Release()
		}
		back := fault.MoveClock(e, 72*time.Hour)
		a.AfterOutage("the server's clock was moved 3 days ahead")
		last := a.Token()
		a.Release()
		further := fault.MoveClock(e, time.Hour)
		c.AfterOutage("the server's clock was moved one hour further").Release()
		time.Sleep(2 * e.Settle()) // servers sweep expired data now and then
		further()
		back()
		b.TakesAbove(last, "the server's clock is right again, and A has unlocked")
	},
}, {
	Name:    "a hold that was ended behind its holder's back is lost",
	Promise: "A hold that the backend has ended is lost: Extend and Unlock say ErrLost.",
	Sources: []string{source.MutexUnlock, source.JepsenEtcd},
	Needs:   []need.Need{need.Revokes},
	Body: func(e *party.Env) {
		name := e.Name()
		a, b := e.Party("A", name, e.Long), e.Party("B", e.Name(), e.Long)
		a.Take()
		b.Take()
		fault.Revoke(e, a.Name, b.Name)
		a.Want("Extend of a hold that was ended at the server", a.Extend(), locker.ErrLost)
		a.WantNoToken("after Extend said ErrLost")
		a.Want("Unlock of a hold that was ended at the server", a.Unlock(), locker.ErrLost)
		b.Want("Unlock of a hold that was ended at the server", b.Unlock(), locker.ErrLost)
		a.Promptly("its lost hold was unlocked").Release()
	},
}, {
	Name:    "a waiter gets a lock that was taken from its holder",
	Promise: "Lock waits until the caller has the lock, and no longer.",
	Sources: []string{source.JepsenEtcd},
	Needs:   []need.Need{need.Revokes, need.Tokens},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		var tokens party.Sequence
		a.Take()
		tokens.Next(a, "A's hold, which was ended,")
		waiting := b.StartLock(e.Context())
		fault.Revoke(e, a.Name)
		b.Granted(waiting, e.Long+e.Patience, "A's hold, with a TTL of %v, was ended at the server", e.Long)
		tokens.Next(b, "B's hold")
		a.Want("Unlock, when B has the lock", a.Unlock(), locker.ErrLost)
		b.Release()
	},
}}

// down is how long killed servers stay down in these scenarios: a long time for a client.
const down = 300 * time.Millisecond

// survives injects a fault into the backend while A holds the lock. B then tries to get it until
// A's hold is about to end, or C has had another lock for a while: as long as the backend grants no
// lock at all, B's failure proves nothing.
func survives(e *party.Env, inject func()) {
	name, ttl := e.Name(), 2*e.Long // servers may take a while to come back
	a, b, c := e.Party("A", name, ttl), e.Party("B", name, ttl), e.Party("C", e.Name(), ttl)
	a.Take()
	until := time.Now().Add(ttl)
	inject()
	if !time.Now().Before(until) {
		e.Doubtf("the fault of the backend took longer than A's hold, %v", ttl)
	}
	ctx, cancel := context.WithDeadline(e.Context(), until.Add(-party.Pause))
	defer cancel()
	e.Spawn(func() {
		if c.LockAtLast(ctx) == nil {
			time.AfterFunc(e.Prompt, cancel)
		}
	})
	a.Outlasts(ctx, b)
	_ = a.Unlock()
	b.AfterOutage("A has unlocked")
	_ = b.Unlock()
}

// unlocksForgotten has A unlock after a failover to the server that lags most, which may have
// granted B the lock. That server knows an earlier hold of the name. With again A's release is sent
// twice, because the first reply is lost.
func unlocksForgotten(e *party.Env, again bool) {
	name, ttl := e.Name(), 3*e.Long // servers may take a while to come back
	if e.Grace > 0 {
		ttl = e.Grace // a longer TTL would lengthen the grace period
	}
	a, unlock := e.Party("A", name, ttl), func(a *party.Party) error { return a.Unlock() }
	if again {
		linked, w := fault.Linked(e, "A", name, ttl)
		a, unlock = linked, func(a *party.Party) error {
			// Wanted asks the new primary, and so connects A to it.
			if l, ok := power.Of[power.Wanter](a.Locker); ok {
				_ = l.Wanted()
				time.Sleep(3 * e.Settle())
			}
			w.LoseReplies()
			stop := time.AfterFunc(party.Settle, w.Mend)
			defer stop.Stop()
			return a.Unlock()
		}
	}
	b, c := e.Party("B", name, ttl), e.Party("C", e.Name(), ttl)
	a.Take()
	a.Release()
	fail := fault.FailOver(e)
	a.Take()
	fail()
	c.AfterOutage("a server took over")
	_ = c.Unlock()
	if b.LockWithin(e.Prompt) != nil { // the hold is not forgotten
		_ = a.Unlock()
		return
	}
	switch err := unlock(a); {
	case err == nil:
		e.Failf("a failover forgot A's hold, and B has the lock; A's Unlock said nil")
	case errors.Is(err, locker.ErrNotHeld):
		e.Failf("A's Unlock of a hold that a failover forgot: %v; want ErrLost", err)
	}
	b.Still("A has unlocked what it lost")
	_ = b.Unlock()
}

// risesThrough injects a fault into the backend between two holds.
func risesThrough(e *party.Env, inject func()) {
	a, b := e.Rivals(e.Long, e.Long)
	var last uint64
	for range 3 {
		a.Take()
		last = a.Token()
		a.Release()
	}
	inject()
	b.TakesAbove(last, "A has unlocked")
}

// Processes are the scenarios of processes that are stopped or killed.
var Processes = []scenario.Row{{
	Name: "a process that was stopped past its TTL knows when it wakes",
	Promise: "The holder's process decides by its own clock that a hold is lost, at the latest " +
		"at the deadline. A process that was stopped until after the deadline reports the loss " +
		"as soon as it runs.",
	Sources: []string{source.Kleppmann, source.MostNews},
	Needs:   []need.Need{need.Processes, need.Expire},
	Body: func(e *party.Env) {
		name := e.Name()
		a, b := fault.StartProcess(e, "A", name, e.TTL), e.Party("B", name, e.Long)
		a.Take()
		a.Stop()
		b.LockBy(e.TTL+party.Slack(e.TTL)+e.Patience, "A was stopped past its TTL of %v", e.TTL)
		token := b.Token()
		a.Resume()
		if late := a.Token(); late != 0 {
			b.Still("A was stopped past its TTL and B has the lock")
			e.Failf("A was stopped past its TTL, and B has the lock; A wakes, and its token is %d; want 0", late)
		}
		a.Want("Extend when it wakes", a.Extend(), locker.ErrLost)
		a.Want("Unlock when it wakes", a.Unlock(), locker.ErrLost)
		b.Still("A has woken, and unlocked what it lost")
		b.KeepsToken(token, "after A's Unlock of a lost hold")
		b.Release()
	},
}, {
	Name:    "the hold of a process that was killed expires",
	Promise: "A hold that nobody extends or unlocks expires after one TTL, and a waiter gets the lock.",
	Sources: []string{source.RedisDocs},
	Needs:   []need.Need{need.Processes},
	Body: func(e *party.Env) {
		name := e.Name()
		a, b := fault.StartProcess(e, "A", name, e.TTL), e.Party("B", name, e.Long)
		a.Take()
		a.Kill()
		b.LockBy(e.TTL+party.Slack(e.TTL), "A, whose TTL is %v, was killed", e.TTL).Release()
	},
}, {
	Name:    "a process that is stopped while it waits does not hold up those behind it",
	Promise: "A waiter from which nothing more is heard is passed over within one TTL.",
	Sources: []string{source.ZkRecipe, source.MutexReply},
	Needs:   []need.Need{need.Processes, need.Expire},
	Body:    func(e *party.Env) { waiterFails(e, (*fault.Process).Stop) },
}, {
	Name:    "a process that is killed while it waits does not hold up those behind it",
	Promise: "A waiter from which nothing more is heard is passed over within one TTL.",
	Sources: []string{source.ZkRecipe},
	Needs:   []need.Need{need.Processes},
	Body:    func(e *party.Env) { waiterFails(e, (*fault.Process).Kill) },
}}

// waiterFails has the first of two waiters be heard of no more.
func waiterFails(e *party.Env, fail func(*fault.Process)) {
	name := e.Name()
	ttl := e.Lifetime(time.Second)
	a, b, c := e.Party("A", name, e.Long), fault.StartProcess(e, "B", name, ttl), e.Party("C", name, ttl)
	a.PassesOver(b.Party, c, func() { fail(b) }, "is stopped")
}

// Faults are the scenarios that check whether the Harness's faults take effect. The scenarios that
// use a fault check it again. FailOver is observed at the servers that Through reveals. MoveClock
// is not checked: it has no effect on a lock that depends on no clock.
var Faults = []scenario.Row{{
	Name:    "the fault StopServer acts",
	Promise: "Faults.StopServer makes the backend silent until resume is called.",
	Needs:   []need.Need{need.Stops},
	Body:    func(e *party.Env) { staysSilent(e, "StopServer", e.Harness.Faults.StopServer) },
}, {
	Name:    "the fault KillServer acts",
	Promise: "Faults.KillServer ends the backend until restart is called.",
	Needs:   []need.Need{need.Kills},
	Body:    func(e *party.Env) { staysSilent(e, "KillServer", e.Harness.Faults.KillServer) },
}, {
	Name:    "the fault WipeServer acts",
	Promise: "Faults.WipeServer ends the backend, and after restart no hold from before is known.",
	Needs:   []need.Need{need.Wipes},
	Body: func(e *party.Env) {
		k := fault.HoldEarlier(e)
		staysSilent(e, "WipeServer", e.Harness.Faults.WipeServer)
		e.Certainly(k.Gone())
	},
}, {
	Name:    "the fault Refuse acts",
	Promise: "Faults.Refuse has the backend grant no free lock until accept is called.",
	Needs:   []need.Need{need.Refuses},
	Body:    func(e *party.Env) { e.Certainly(fault.Refuse(e, func() {})) },
}, {
	Name:    "the fault FailOver acts",
	Promise: "Faults.FailOver acts: a server goes down, or one that was down comes back.",
	Needs:   []need.Need{need.FailsOver, need.Links},
	Body: func(e *party.Env) {
		b := e.Party("B", e.Name(), e.Long)
		fault.FailOver(e)()
		b.AfterOutage("another server has taken over")
		_ = b.Unlock()
	},
}, {
	Name:    "the fault Revoke acts",
	Promise: "Faults.Revoke ends the hold of a name: the lock is free at once.",
	Needs:   []need.Need{need.Revokes},
	Body: func(e *party.Env) {
		refused, err := fault.Revocation(e)
		e.Certainly(err)
		if refused != nil {
			e.Doubtf("Faults.Revoke was told to end a hold, whose Extend then fails, and for %v another did not get the lock: %v", e.Prompt, refused)
		}
	},
}, {
	Name: "the fault Through acts",
	Promise: "The suite gives Faults.Through a function, via, that takes the address of a " +
		"server, and returns that of a proxy. The Locker that Through returns connects only to " +
		"the proxies.",
	Needs: []need.Need{need.Links},
	Body:  func(e *party.Env) { e.Certainly(fault.Passes(e)) },
}, {
	Name:    "the fault Process acts",
	Promise: "The process of Faults.Process is the holder: nothing happens in it while it is stopped, or after it is killed.",
	Needs:   []need.Need{need.Processes},
	Body: func(e *party.Env) {
		a := fault.StartProcess(e, "A", e.Name(), e.Long)
		a.Take()
		a.Stop()
		a.Asleep(party.Settle)
		a.Resume()
		if !a.Answered(a.Ask(), e.Patience) {
			e.Doubtf("%v after Faults.Process's process was continued it has not answered", e.Patience)
		}
		a.Kill()
	},
}}

// staysSilent ends the scenario unless the backend is silent until the fault is undone, and answers
// afterwards.
func staysSilent(e *party.Env, field string, cause func(harness.TB) (undo func())) {
	s, undo, err := fault.Hush(e, field, cause)
	e.Certainly(err)
	e.Relies(s.Idle(party.Settle))
	undo()
	b := e.Party("B", e.Name(), e.Long)
	b.AfterOutage("the servers answer again")
	_ = b.Unlock()
}
