package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

var waitingRows = []row{{
	name:    "the lock passes from holder to holder",
	promise: "Unlock ends the caller's hold, and the lock is free for the next one.",
	body:    passesOn,
}, {
	name:    "a waiter wakes when the holder unlocks",
	promise: "Lock waits until the lock is held: it does not wait for the TTL of a hold that was unlocked.",
	body:    wakesOnUnlock,
}, {
	name:    "no unlock in many is missed",
	promise: "Lock waits until the lock is held: it does not wait for the TTL of a hold that was unlocked.",
	chance:  true,
	body:    missesNoUnlock,
}, {
	name:    "a waiter wakes when the holder has crashed",
	promise: "A hold that nobody extends or unlocks lapses after one TTL, and a waiter gets the lock.",
	body:    wakesOnCrash,
}, {
	name:    "everyone who waits is served",
	promise: "Lock waits until the lock is held: nobody who waits is forgotten.",
	body:    everyoneServed,
}, {
	name:    "everyone who waits on one Locker is served",
	promise: "A Locker may be used by several goroutines: nobody who waits is forgotten.",
	body: func(e *env) {
		a := e.party("A", e.name(), e.long)
		e.serve(a, sharers(a))
	},
}}

func passesOn(e *env) {
	name := e.name()
	a, b := e.party("A", name, e.long), e.party("B", name, e.long)
	for range 3 {
		for _, p := range []*party{a, b} {
			p.promptly("the other has unlocked")
			p.release()
		}
	}
}

func wakesOnUnlock(e *env) {
	name := e.name()
	a, b := e.party("A", name, e.long), e.party("B", name, e.long)
	a.take()
	done := b.start(e.ctx)
	select {
	case err := <-done:
		e.early(a, b, err)
	case <-time.After(settle):
	}
	a.release()
	select {
	case err := <-done:
		if err != nil {
			e.doubtf("B's Lock: %v", err)
		}
		b.release()
	case <-time.After(e.prompt):
		e.doubtf("%v after A's Unlock B, who waits, has no lock; the TTL is %v", e.prompt, e.long)
	}
}

// missesNoUnlock has two processes take turns: each unlocks when the other should be waiting.
func missesNoUnlock(e *env) {
	const rounds = 300
	name := e.name()
	holder, waiter := e.party("A", name, e.long), e.party("B", name, e.long)
	holder.take()
	end := time.Now().Add(contentionTime)
	for i := 1; i <= rounds && time.Now().Before(end); i++ {
		done := waiter.start(e.ctx)
		time.Sleep(rand.N(2 * time.Millisecond)) // now and then the Unlock comes first, or just then
		holder.drop()
		select {
		case err := <-done:
			if err != nil {
				e.doubtf("%s's Lock: %v", waiter.who, err)
			}
		case <-time.After(e.prompt):
			e.doubtf("%v after Unlock %d the waiter has no lock", e.prompt, i)
		}
		holder, waiter = waiter, holder
	}
	holder.drop()
}

// slack is how late after ttl a waiter may get the lock of a holder that has crashed.
func slack(ttl time.Duration) time.Duration { return max(800*time.Millisecond, ttl/2) }

func wakesOnCrash(e *env) {
	name, ttl := e.name(), max(e.ttl, 1200*time.Millisecond) // longer than slack
	a, b := e.party("A", name, ttl), e.party("B", name, ttl)
	a.take()
	start := time.Now()
	if err := b.lockWithin(ttl + slack(ttl)); err != nil {
		e.doubtf("B's Lock, %v after A took the lock for %v and was heard of no more: %v", time.Since(start), ttl, err)
	}
	b.release()
}

func everyoneServed(e *env) {
	name := e.name()
	e.serve(e.party("A", name, e.long), e.processes(name))
}

// serve has each of the waiters lock once. In which order is not asked for.
func (e *env) serve(a *party, waiters []*party) {
	a.take()
	ctx, cancel := context.WithTimeout(e.ctx, e.long+e.patience)
	defer cancel()
	served := make(chan error, len(waiters))
	for _, p := range waiters {
		e.spawn(func() {
			err := p.lock(ctx)
			if err == nil {
				time.Sleep(time.Millisecond)
				err = p.unlock()
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", p.who, err)
			}
			served <- err
		})
	}
	time.Sleep(settle)
	a.release()
	for i := range waiters {
		if err := <-served; err != nil {
			e.doubtf("%d of %d waiters were served, then %v", i, len(waiters), err)
		}
	}
}
