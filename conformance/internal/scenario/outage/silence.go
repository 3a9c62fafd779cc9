package outage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/fault"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
)

// Silence are the scenarios of servers that answer nothing.
var Silence = []scenario.Row{{
	Name: "Lock returns soon after ctx ends though the server is silent",
	Promise: "When ctx ends, Lock returns within milliseconds, even if the server does not " +
		"answer. The error matches ctx.Err() and context.Cause(ctx). It is not ErrHeld if the " +
		"server has never answered.",
	Sources: []string{source.GoContext, source.RedsyncStopped, source.MostErrors},
	Needs:   []need.Need{need.Stops, need.Limits},
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.Long)
		silentAttempt(e, a, "Lock", a.Lock)
	},
}, {
	Name: "TryLock returns soon after ctx ends though the server is silent",
	Promise: "When ctx ends, TryLock returns within milliseconds, even if the server does not " +
		"answer. The error is not ErrHeld if the server has never answered.",
	Sources: []string{source.GoContext, source.RedsyncStopped},
	Needs:   []need.Need{need.Stops, need.Cancels},
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.Long)
		silentAttempt(e, a, "TryLock", a.TryLock)
	},
}, {
	Name:    "Extend returns soon after ctx ends though the server is silent",
	Promise: "When ctx ends, Extend returns within milliseconds, whatever the server does; the old deadline stands.",
	Sources: []string{source.GoContext, source.RedsyncStopped},
	Needs:   []need.Need{need.Stops, need.Extends, need.Cancels},
	// No error is asked for: a session may be known to last for a TTL from now.
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), 2*e.Long) // longer than the fault and the call may take
		a.Take()
		before := a.Token()
		fault.Stop(e)
		err, _ := a.Interrupted("Extend", a.ExtendWith)
		if after := a.Token(); after != before {
			e.Doubtf("A's token is %d; after an Extend that returned %s long before the deadline it is %d", before, party.Says(err), after)
		}
	},
}, {
	Name:    "Unlock returns soon after ctx ends though the server is silent",
	Promise: "When ctx ends, Unlock returns within milliseconds, whatever the server does. The caller no longer has the hold.",
	Sources: []string{source.GoContext, source.RedsyncStopped},
	Needs:   []need.Need{need.Stops, need.Cancels},
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), 2*e.Long)
		a.Take()
		fault.Stop(e)
		err, _ := a.Interrupted("Unlock", a.UnlockWith)
		a.WantNoToken("after Unlock, which returned " + party.Says(err))
	},
}, {
	Name: "a Lock that ended while the server was silent leaves nothing behind",
	Promise: "Clean-up may miss something, and a request may arrive after clean-up and take the " +
		"lock. What is left in these cases expires within one TTL.",
	Sources: []string{source.RedsyncStopped},
	Needs:   []need.Need{need.Stops, need.Limits},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.TTL)
		silentAttempt(e, a, "Lock", a.Lock)()
		for range 2 {
			time.Sleep(e.Settle()) // the request that A gave up may be applied now
			b.LockBy(e.TTL+party.Slack(e.TTL), "the server answers again").Release()
		}
	},
}, {
	Name:    "Lost fires in time though the server is silent",
	Promise: "Lost fires no later than the local deadline, even when the backend cannot be reached and a renewal hangs.",
	Sources: []string{source.Chubby, source.MostNews},
	Needs:   []need.Need{need.Stops, need.Clients, need.Renews},
	Body: func(e *party.Env) {
		ttl := e.Lifetime(2 * time.Second) // longer than the fault may take to act
		a, b := e.Party("A", e.Name(), ttl), e.Client(ttl, true)("B", e.Name())
		a.Tells()
		a.Take()
		b.Take()
		fault.Stop(e)
		endOfA, endOfB := a.Deadline(), b.Deadline() // there may be none once a hold is lost
		e.Together(
			func() { a.LostBy(endOfA, a.Lost()) },
			func() { b.LostBy(endOfB, b.Lost()) },
		)
		for _, p := range []*party.Party{a, b} {
			p.WantNoToken("after Lost has fired")
		}
	},
}, {
	Name:    "Unlock returns by the deadline though the server is silent",
	Promise: "Unlock returns by the hold's deadline, even if ctx ends later.",
	Sources: []string{source.RedsyncStopped, source.ValkeyrieUnlock},
	Needs:   []need.Need{need.Stops},
	Body: func(e *party.Env) {
		ttl := e.Lifetime(2 * time.Second) // longer than the fault may take to act
		a := e.Party("A", e.Name(), ttl)
		a.Take()
		start := time.Now()
		fault.Stop(e)
		a.UnlockFails(start, "the server answers nothing")
		a.Want("second Unlock", a.Unlock(), locker.ErrNotHeld)
	},
}, {
	Name:    "a renewed hold that expired at a silent server stays lost",
	Promise: "Loss is final: no renewal revives a hold that has ended at the backend.",
	Sources: []string{source.RedissonRenewal},
	Chance:  true, // whether a server that wakes looks at its clock first or hears of the holder
	Needs:   []need.Need{need.Stops, need.Clients, need.Renews},
	Body: func(e *party.Env) {
		name := e.Name()
		a := e.Client(e.TTL, true)("A", name)
		b, c := e.Party("B", name, e.TTL), e.Party("C", name, e.TTL)
		a.Take()
		resume := fault.Stop(e)
		time.Sleep(e.TTL + party.Coarse)
		resume()
		b.AfterOutage("the server was silent for more than the TTL of A's hold")
		a.WantNoToken("when B has the lock")
		// B is heard of no more: if A still renews, C waits for ever.
		c.LockBy(e.TTL+party.Slack(e.TTL), "B's TTL is over, while A, who lost the lock, has not unlocked")
		a.Want("Unlock, after B and C took the lock", a.Unlock(), locker.ErrLost)
		c.Release()
	},
}, {
	Name: "the first Lock of a process returns soon after ctx ends, after whichever request the server falls silent",
	Promise: "When ctx ends, Lock returns within milliseconds, even if the server has answered " +
		"only the first requests of this process. The client can be closed then, too.",
	Sources: []string{source.GoContext, source.RedsyncStopped},
	Needs:   []need.Need{need.Links, need.Limits},
	Body: func(e *party.Env) {
		a, w := fault.Linked(e, "A", e.Name(), e.Long)
		before := w.Requests()
		a.Take()
		sent := w.Requests() - before
		a.Release()
		var stories []func()
		for answered := range min(sent, mostRequests) {
			stories = append(stories, func() {
				process, end := e.Scoped()
				defer end()
				a, w := fault.Link(process, "A", e.Name(), e.Long)
				w.PassFirst(answered)
				err, _ := a.Interrupted(fmt.Sprintf("first Lock, of which %d requests of %d were answered", answered, sent), a.Lock)
				if errors.Is(err, locker.ErrHeld) {
					e.Failf("A's first Lock, when nobody had the lock, and %d requests of %d were answered: %v; want no ErrHeld", answered, sent, err)
				}
				start := time.Now()
				engine.Within(e.Patience+e.Prompt, process.End)
				if took := time.Since(start); took >= e.Patience+e.Prompt {
					e.Doubtf("%v after the server fell silent, with %d requests of %d of the first "+
						"Lock answered, the Cleanup functions of the Harness had not returned", took, answered, sent)
				}
			})
		}
		e.Together(stories...)
	},
}}

// silentAttempt makes one attempt at a free lock while the server is silent.
func silentAttempt(e *party.Env, a *party.Party, op string, attempt func(context.Context) error) (resume func()) {
	a.Connect()
	resume = fault.Stop(e)
	err, cancelled := a.Interrupted(op, attempt)
	if engine.IsSkip(err) {
		e.Skip("the Locker has no TryLock")
	}
	a.NotTaken(op, err, "the server answers nothing")
	if cancelled {
		a.WantEnded(op, err, context.Canceled, party.ErrStop)
	}
	return resume
}

// mostRequests is how many requests of a first Lock may be the last that is answered.
const mostRequests = 16
