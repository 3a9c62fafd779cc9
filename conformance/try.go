package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
)

var tryRows = []row{{
	name:    "TryLock of a held lock says ErrHeld",
	promise: "TryLock makes one attempt, and returns an error that matches ErrHeld if the lock is another's.",
	sources: []string{mostErrors},
	body:    tryHeld,
}, {
	name:    "TryLock does not wait",
	promise: "TryLock makes one attempt, and does not wait for the holder.",
	sources: []string{goLocker},
	body:    tryDoesNotWait,
}, {
	name:    "TryLock takes a free lock",
	promise: "TryLock takes a free lock, each time. A hold taken by it is like one taken by Lock.",
	sources: []string{goLocker},
	body:    tryTakes,
}, {
	name:    "TryLock heeds a ctx that has ended",
	promise: "When ctx has ended TryLock fails with an error that matches ctx.Err() and context.Cause(ctx), and holds nothing.",
	sources: []string{goContext},
	needs:   []need{cancels},
	body:    tryEndedContext,
}}

func tryHeld(e *env) {
	a, b := e.rivals(e.long, e.long)
	a.take()
	for _, p := range []*party{b, a} { // the holder's own Locker is as any other
		err := p.try()
		if err == nil {
			a.overlap(p)
		}
		if errors.Is(err, locker.ErrLost) {
			e.doubtf("%s's TryLock: %v", p.who, err)
		}
		p.want("TryLock of a held lock", err, locker.ErrHeld)
	}
	b.wantNoToken("after a TryLock that failed")
	a.release()
}

func tryDoesNotWait(e *env) {
	a, b := e.rivals(e.long, e.long)
	a.take()
	start := time.Now()
	if err := b.try(); err == nil {
		e.doubtf("B's TryLock succeeded after %v while A had the lock", time.Since(start))
	}
	if took := time.Since(start); took > e.prompt {
		e.doubtf("B's TryLock of a held lock took %v", took)
	}
	a.release()
}

func tryTakes(e *env) {
	e.triesAlone()
	a, b := e.rivals(e.long, e.long)
	if err := a.try(); err != nil {
		e.doubtf("A's TryLock of a free lock: %v", err)
	}
	a.excludes(b, e.settle())
	a.prolong()
	a.release()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		err := b.try() // what B's Lock, which gave up, left behind may take a moment to go
		if err == nil {
			break
		}
		if time.Since(start) > e.prompt {
			e.doubtf("B's TryLock of a lock that A has unlocked: %v", err)
		}
	}
	b.release()
}

// triesAlone has nobody else want the lock.
func (e *env) triesAlone() {
	a := e.party("A", e.name(), e.long)
	for n, end := 1, time.Now().Add(e.prompt); n <= 50 && time.Now().Before(end); n++ {
		if err := a.try(); errors.Is(err, locker.ErrHeld) {
			e.doubtf("A's TryLock number %d: %v; nobody else wants the lock, and each Unlock before said nil", n, err)
		} else if err != nil {
			return // only ErrHeld speaks of another
		}
		if a.unlock() != nil {
			return // in doubt it may be held yet
		}
	}
}

func tryEndedContext(e *env) {
	a := e.party("A", e.name(), e.long)
	ctx, cancel := context.WithCancelCause(e.Context())
	cancel(errStop)
	err := a.tryLock(ctx)
	if isSkip(err) {
		e.skip("the Locker has no TryLock")
	}
	a.want("TryLock with a cancelled ctx", err, context.Canceled)
	a.want("TryLock with a cancelled ctx", err, errStop)
	a.want("Unlock after a TryLock that failed", a.unlock(), locker.ErrNotHeld)
}
