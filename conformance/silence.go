package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
)

var silenceRows = []row{{
	name:    "Lock returns soon after ctx ends though the server is silent",
	promise: "When ctx ends, Lock returns within milliseconds, even if the server does not answer. The error matches ctx.Err() and context.Cause(ctx). It is not ErrHeld if the server has never answered.",
	sources: []string{goContext, redsyncStopped, mostErrors},
	needs:   []need{stops, limits},
	body:    silentLock,
}, {
	name:    "TryLock returns soon after ctx ends though the server is silent",
	promise: "When ctx ends, TryLock returns within milliseconds, even if the server does not answer. The error is not ErrHeld if the server has never answered.",
	sources: []string{goContext, redsyncStopped},
	needs:   []need{stops, cancels},
	body:    silentTryLock,
}, {
	name:    "Extend returns soon after ctx ends though the server is silent",
	promise: "When ctx ends, Extend returns within milliseconds, whatever the server does; the old deadline stands.",
	sources: []string{goContext, redsyncStopped},
	needs:   []need{stops, extends, cancels},
	body:    silentExtend,
}, {
	name:    "Unlock returns soon after ctx ends though the server is silent",
	promise: "When ctx ends, Unlock returns within milliseconds, whatever the server does. The caller no longer has the hold.",
	sources: []string{goContext, redsyncStopped},
	needs:   []need{stops, cancels},
	body:    silentUnlockWithContext,
}, {
	name:    "a Lock that ended while the server was silent leaves nothing behind",
	promise: "Clean-up may miss something, and a request may arrive after clean-up and take the lock. What is left in these cases expires within one TTL.",
	sources: []string{redsyncStopped},
	needs:   []need{stops, limits},
	body:    silentLockLeavesNothing,
}, {
	name:    "Lost fires in time though the server is silent",
	promise: "Lost fires no later than the local deadline, even when the backend cannot be reached and a renewal hangs.",
	sources: []string{chubby, mostNews},
	needs:   []need{stops, clients, renews},
	body:    silentLost,
}, {
	name:    "Unlock returns by the deadline though the server is silent",
	promise: "Unlock returns by the hold's deadline, even if ctx ends later.",
	sources: []string{redsyncStopped, valkeyrieUnlock},
	needs:   []need{stops},
	body:    silentUnlock,
}, {
	name:    "a renewed hold that expired at a silent server stays lost",
	promise: "Loss is final: no renewal revives a hold that has ended at the backend.",
	sources: []string{redissonRenewal},
	chance:  true, // whether a server that wakes looks at its clock first or hears of the holder
	needs:   []need{stops, clients, renews},
	body:    silentRenewal,
}, {
	name:    "the first Lock of a process returns soon after ctx ends, after whichever request the server falls silent",
	promise: "When ctx ends, Lock returns within milliseconds, even if the server has answered only the first requests of this process. The client can be closed then, too.",
	sources: []string{goContext, redsyncStopped},
	needs:   []need{links, limits},
	body:    silentFirstLock,
}}

// interrupt makes a call while the server is silent and cancels its ctx, with a cause, after a moment. It returns the
// error of the call, and whether the ctx had ended by then: a client's own time-out may be short.
func (e *env) interrupt(op string, call func(context.Context) error) (err error, cancelled bool) {
	ctx, cancel := context.WithCancelCause(e.Context())
	defer cancel(nil)
	done := make(chan error, 1)
	e.spawn(func() { done <- call(ctx) })
	select {
	case err = <-done:
		return err, false
	case <-time.After(e.settle()):
	}
	cancel(errStop)
	select {
	case err = <-done:
	case <-time.After(e.prompt):
		e.doubtf("A's %s had not returned %v after its ctx ended", op, e.prompt)
	}
	return err, true
}

// silentAttempt makes one attempt at a free lock while the server is silent.
func (e *env) silentAttempt(a *party, op string, attempt func(context.Context) error) (resume func()) {
	a.take() // there is a connection
	a.release()
	resume = e.stop()
	err, cancelled := e.interrupt(op, attempt)
	switch {
	case isSkip(err):
		e.skip("the Locker has no TryLock")
	case err == nil:
		e.failf("A's %s succeeded though the server answers nothing", op)
	case errors.Is(err, locker.ErrHeld):
		e.failf("A's %s, when nobody had the lock and the server was silent: %v; want no ErrHeld", op, err)
	case cancelled && !(errors.Is(err, context.Canceled) && errors.Is(err, errStop)):
		e.failf("A's %s, when ctx was cancelled with a cause: %v; want an error that matches both", op, err)
	}
	return resume
}

func silentLock(e *env) {
	a := e.party("A", e.name(), e.long)
	e.silentAttempt(a, "Lock", a.lock)
}

func silentTryLock(e *env) {
	a := e.party("A", e.name(), e.long)
	e.silentAttempt(a, "TryLock", a.tryLock)
}

// silentExtend does not ask for an error: a session may be known to last for a TTL from now.
func silentExtend(e *env) {
	a := e.party("A", e.name(), 2*e.long) // longer than the fault and the call may take
	a.take()
	before := a.token()
	e.stop()
	err, _ := e.interrupt("Extend", a.extendWith)
	if after := a.token(); after != before {
		e.doubtf("A's token is %d; after an Extend that returned %s long before the deadline it is %d", before, says(err), after)
	}
}

func silentUnlockWithContext(e *env) {
	a := e.party("A", e.name(), 2*e.long)
	a.take()
	e.stop()
	err, _ := e.interrupt("Unlock", a.unlockWith)
	a.wantNoToken("after Unlock, which returned " + says(err))
}

func silentLockLeavesNothing(e *env) {
	a, b := e.rivals(e.ttl, e.ttl)
	e.silentAttempt(a, "Lock", a.lock)()
	for range 2 {
		time.Sleep(e.settle()) // the request that A gave up may be applied now
		b.lockBy(e.ttl+slack(e.ttl), "the server answers again")
		b.release()
	}
}

func silentLost(e *env) {
	ttl := e.lifetime(2 * time.Second) // longer than the fault may take to act
	a, b := e.party("A", e.name(), ttl), e.client(ttl, true)("B", e.name())
	a.tells()
	a.take()
	b.take()
	e.stop()
	endOfA, endOfB := a.deadline(), b.deadline() // there may be none once a hold is lost
	e.together(
		func() { a.lostBy(endOfA, a.lost()) },
		func() { b.lostBy(endOfB, b.lost()) },
	)
	for _, p := range []*party{a, b} {
		if token := p.token(); token != 0 {
			e.failf("%s's token after Lost has fired is %d; want 0", p.who, token)
		}
	}
}

func silentUnlock(e *env) {
	ttl := e.lifetime(2 * time.Second) // longer than the fault may take to act
	a := e.party("A", e.name(), ttl)
	a.take()
	start := time.Now()
	e.stop()
	err := a.unlock()
	if took := time.Since(start); took > ttl+pause {
		e.doubtf("A's Unlock took %v, with a TTL of %v", took, ttl)
	}
	if err == nil {
		e.failf("A's Unlock said nil though the server answers nothing")
	}
	a.wantNoToken("after Unlock, which returned " + says(err))
	a.want("second Unlock", a.unlock(), locker.ErrNotHeld)
}

func silentRenewal(e *env) {
	name := e.name()
	a := e.client(e.ttl, true)("A", name)
	b, c := e.party("B", name, e.ttl), e.party("C", name, e.ttl)
	a.take()
	resume := e.stop()
	time.Sleep(e.ttl + coarse)
	resume()
	b.afterOutage("the server was silent for more than the TTL of A's hold")
	a.wantNoToken("when B has the lock")
	// B is heard of no more: if A still renews, C waits for ever.
	c.lockBy(e.ttl+slack(e.ttl), "B's TTL is over, while A, who lost the lock, has not unlocked")
	a.want("Unlock, after B and C took the lock", a.unlock(), locker.ErrLost)
	c.release()
}

// mostRequests is how many requests of a first Lock may be the last that is answered.
const mostRequests = 16

func silentFirstLock(e *env) {
	a, w := e.linked("A", e.name(), e.long)
	before := w.requests()
	a.take()
	sent := w.requests() - before
	a.release()
	var stories []func()
	for answered := range min(sent, mostRequests) {
		stories = append(stories, func() {
			process, end := e.scoped()
			defer end()
			a, w := process.link("A", e.name(), e.long)
			w.passFirst(answered)
			err, _ := process.interrupt(fmt.Sprintf("first Lock, of which %d requests of %d were answered", answered, sent), a.lock)
			if errors.Is(err, locker.ErrHeld) {
				e.failf("A's first Lock, when nobody had the lock, and %d requests of %d were answered: %v; want no ErrHeld", answered, sent, err)
			}
			start := time.Now()
			engine.Within(e.patience+e.prompt, process.End)
			if took := time.Since(start); took >= e.patience+e.prompt {
				e.doubtf("%v after the server fell silent, with %d requests of %d of the first Lock answered, the Cleanup functions of the Harness had not returned", took, answered, sent)
			}
		})
	}
	e.together(stories...)
}
