package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
)

var silenceRows = []row{{
	name:    "Lock returns soon after ctx ends though the server is silent",
	promise: "When ctx ends Lock returns within milliseconds, whatever the server does; the error matches ctx.Err() and context.Cause(ctx), and is not ErrHeld.",
	sources: []string{goContext, redsyncStopped, mostErrors},
	needs:   []need{stops},
	body:    silentLock,
}, {
	name:    "a Lock that ended while the server was silent leaves nothing behind",
	promise: "A trace that clean-up cannot reach, or a request that arrives after it, expires within one TTL.",
	sources: []string{redsyncStopped},
	needs:   []need{stops},
	body:    silentLockLeavesNothing,
}, {
	name:    "Lost fires in time though the server is silent",
	promise: "Lost fires no later than the local deadline, even when the backend cannot be reached and a renewal hangs.",
	sources: []string{chubby, mostNews},
	needs:   []need{stops, clients},
	body:    silentLost,
}, {
	name:    "Unlock returns by the deadline though the server is silent",
	promise: "Unlock returns by the hold's deadline whatever ctx allows.",
	sources: []string{redsyncStopped, valkeyrieUnlock},
	needs:   []need{stops},
	body:    silentUnlock,
}, {
	name:    "a renewed hold that expired at a silent server stays lost",
	promise: "Loss is final: a renewal whose answer says that the hold is gone revives nothing.",
	sources: []string{redissonRenewal},
	chance:  true, // whether a server that wakes looks at its clock first or hears of the holder
	needs:   []need{stops, clients},
	body:    silentRenewal,
}}

// silentAttempt locks once while the server is silent.
func (e *env) silentAttempt(a *party) (resume func()) {
	a.take() // there is a connection
	a.release()
	resume = e.stop()
	ctx, cancel := context.WithCancelCause(e.ctx)
	defer cancel(nil)
	done := a.start(ctx)
	var err error
	select {
	case err = <-done: // a client's own time-out may be short
	case <-time.After(settle):
		cancel(errStop)
		select {
		case err = <-done:
		case <-time.After(e.prompt):
			e.doubtf("A's Lock had not returned %v after its ctx ended", e.prompt)
		}
	}
	switch {
	case err == nil:
		e.failf("A's Lock succeeded though the server answers nothing")
	case errors.Is(err, locker.ErrHeld):
		e.failf("A's Lock, when nobody had the lock and the server was silent: %v; want no ErrHeld", err)
	case ctx.Err() != nil && !(errors.Is(err, context.Canceled) && errors.Is(err, errStop)):
		e.failf("A's Lock, when ctx was cancelled with a cause: %v; want an error that matches both", err)
	}
	return resume
}

func silentLock(e *env) {
	e.silentAttempt(e.party("A", e.name(), e.long))()
}

func silentLockLeavesNothing(e *env) {
	name := e.name()
	a, b := e.party("A", name, e.ttl), e.party("B", name, e.ttl)
	e.silentAttempt(a)()
	for range 2 {
		time.Sleep(settle) // the request that A gave up may be applied now
		start := time.Now()
		if err := b.lockWithin(e.ttl + slack(e.ttl)); err != nil {
			e.doubtf("B's Lock, %v after the server answers again: %v", time.Since(start), err)
		}
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
	if a.token() == 0 || b.token() == 0 {
		e.doubtf("a hold was over before the server was silent")
	}
	a.lostBy(a.deadline(), a.lost())
	b.lostBy(b.deadline(), b.lost())
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
	if token := a.token(); token != 0 {
		e.failf("A's token after Unlock, which said %v, is %d; want 0", says(err), token)
	}
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
	if token := a.token(); token != 0 {
		e.failf("A's token, when B has the lock, is %d; want 0", token)
	}
	// B is heard of no more: if A still renews, C waits for ever.
	if err := c.lockWithin(e.ttl + slack(e.ttl)); err != nil {
		e.doubtf("C's Lock, after B's TTL, while A, who lost the lock, has not unlocked: %v", err)
	}
	a.want("Unlock, after B and C took the lock", a.unlock(), locker.ErrLost)
	c.release()
}
