package conformance

import (
	"context"
	"time"

	"github.com/go-locker/locker"
)

var unlockRows = []row{{
	name:    "Unlock of a hold that expired says ErrLost",
	promise: "Unlock says ErrLost if the hold ended first, never nil.",
	sources: []string{mutexUnlock, mostErrors},
	needs:   []need{expire},
	body:    unlockAfterExpiry,
}, {
	name:    "Unlock after a take-over says ErrLost",
	promise: "Unlock says ErrLost if the hold ended first, never nil.",
	sources: []string{mutexUnlock, mostErrors},
	needs:   []need{expire},
	body:    unlockAfterTakeOver,
}, {
	name:    "Unlock after a take-over leaves the new hold alone",
	promise: "Unlock ends the caller's hold, never another owner's.",
	sources: []string{redisDocs},
	needs:   []need{expire},
	body:    func(e *env) { e.harmless("Unlock", (*party).unlock, e.settle()) },
}, {
	name:    "an Unlock overtaken by the expiry leaves the new hold alone",
	promise: "Unlock is one atomic step: it ends the caller's hold, never another owner's, at whatever moment the hold expires.",
	sources: []string{redisDocs},
	needs:   []need{expire},
	body:    unlockOvertaken,
}, {
	name:    "a second Unlock says ErrNotHeld",
	promise: "Unlock says ErrNotHeld without a hold; each success of Lock needs one Unlock.",
	sources: []string{mostErrors},
	body:    secondUnlock,
}, {
	name:    "a second Unlock leaves the next hold alone",
	promise: "Unlock ends the caller's hold, never another owner's.",
	sources: []string{redisDocs, mutexRetry},
	body:    secondUnlockHarmless,
}, {
	name:    "Unlock without Lock says ErrNotHeld",
	promise: "Unlock says ErrNotHeld without a hold.",
	sources: []string{mostErrors},
	body:    unlockWithoutLock,
}, {
	name:    "Unlock of one Locker leaves the holds of others alone",
	promise: "Unlock ends the caller's hold, never another owner's.",
	sources: []string{redisDocs},
	body:    foreignUnlock,
}, {
	name:    "Unlock ends the hold though its ctx has ended",
	promise: "Even if Unlock returns an error, the caller no longer has the hold, and the backend ends it within one TTL.",
	sources: []string{redsyncCancel},
	body:    unlockEndedContext,
}}

func unlockAfterExpiry(e *env) {
	a := e.party("A", e.name(), e.ttl)
	a.take()
	a.awaitExpiry()
	a.want("Unlock after its TTL", a.unlock(), locker.ErrLost)
}

func unlockAfterTakeOver(e *env) {
	a, b := e.rivals(e.ttl, e.long)
	a.takeOver(b)
	a.want("Unlock after B took the lock", a.unlock(), locker.ErrLost)
	b.release()
}

// unlockOvertaken unlocks at moments around the expiry. An Unlock that looks first and deletes then may
// look at its own hold, and delete another's.
func unlockOvertaken(e *env) {
	for _, left := range []time.Duration{e.ttl * 2 / 3, e.ttl / 3, time.Millisecond} { // it may begin late
		a, b := e.rivals(e.ttl, e.long)
		a.take()
		expiry := time.Now().Add(e.ttl)
		if d := a.deadline(); !d.IsZero() {
			expiry = d
		}
		took := b.start(e.Context())
		time.Sleep(time.Until(expiry.Add(-left)))
		unlocked := make(chan error, 1)
		e.spawn(func() { unlocked <- a.unlock() })
		if err := <-took; err != nil {
			e.doubtf("B's Lock: %v", err)
		}
		e.steady(a, b, "Unlock", func(*party) error { return <-unlocked }, e.settle())
	}
}

func secondUnlock(e *env) {
	a := e.party("A", e.name(), e.long)
	a.take()
	a.release()
	a.want("second Unlock", a.unlock(), locker.ErrNotHeld)
	a.take()
	a.release()
	a.want("second Unlock of its second hold", a.unlock(), locker.ErrNotHeld)
}

func secondUnlockHarmless(e *env) {
	a, b := e.rivals(e.long, e.long)
	a.take()
	a.release()
	b.take()
	e.steady(a, b, "second Unlock", (*party).unlock, e.settle())
}

func unlockWithoutLock(e *env) {
	a := e.party("A", e.name(), e.long)
	a.want("Unlock before Lock", a.unlock(), locker.ErrNotHeld)
	a.take()
	a.release()
}

func foreignUnlock(e *env) {
	a, b := e.rivals(e.long, e.long)
	b.take()
	e.steady(a, b, "Unlock without Lock", func(a *party) error {
		err := a.unlock()
		a.want("Unlock, when B holds", err, locker.ErrNotHeld)
		return err
	}, e.settle())
}

func unlockEndedContext(e *env) {
	a, b := e.rivals(e.ttl, e.ttl)
	a.take()
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	err := a.unlockWith(ctx)
	a.wantNoToken("after Unlock, which returned " + says(err))
	a.want("second Unlock", a.unlock(), locker.ErrNotHeld)
	b.lockBy(e.ttl+slack(e.ttl), "A's Unlock had a cancelled ctx")
	b.release()
}

var reuseRows = []row{{
	name:    "a Locker can be locked again after Unlock",
	promise: "After its Unlock a Locker can be locked again.",
	sources: []string{goLocker},
	body:    reuse,
}, {
	name:    "a Locker can be locked again after a loss and its Unlock",
	promise: "After the Unlock of a lost hold a Locker can be locked again.",
	sources: []string{zkDeadlock},
	needs:   []need{expire},
	body:    reuseAfterLoss,
}, {
	name:    "Lock says ErrLost until a lost hold is unlocked",
	promise: "While a lost hold awaits its Unlock, Lock returns ErrLost at once.",
	sources: []string{contract},
	needs:   []need{expire},
	body:    lockBeforeUnlockOfLost,
}}

func reuse(e *env) {
	a, b := e.rivals(e.long, e.long)
	for range 3 {
		a.promptly("A has unlocked")
		a.excludes(b, e.settle()/2)
		a.prolong()
		a.release()
	}
	b.promptly("A has unlocked for the last time")
	b.release()
}

func reuseAfterLoss(e *env) {
	a, b := e.rivals(e.ttl, e.long)
	a.takeOver(b)
	b.release()
	_ = a.unlock() // what it says is the business of another scenario
	a.promptly("A unlocked its lost hold, B has unlocked too")
	a.prolong()
	a.release()
}

func lockBeforeUnlockOfLost(e *env) {
	a, b := e.rivals(e.ttl, e.long)
	a.takeOver(b)
	for range 2 { // while B holds, and when the lock is free
		start := time.Now()
		a.want("Lock, when it has not unlocked its lost hold", a.lockWithin(e.patience), locker.ErrLost)
		if took := time.Since(start); took > e.prompt {
			e.doubtf("A's Lock said ErrLost after %v; want at once", took)
		}
		_ = b.unlock()
	}
	a.want("Unlock of the lost hold", a.unlock(), locker.ErrLost)
}
