package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/power"
)

var outageRows = []row{{
	name:    "an outage is an error or a wait, never ErrHeld",
	promise: "A call that begins during an outage returns an error, or waits until ctx ends. It never returns ErrHeld, and never waits for ever.",
	sources: []string{mostErrors, rueidisErrors},
	needs:   []need{kills, limits},
	body:    outage,
}, {
	name:    "a hold ends in time though the server is down",
	promise: "The holder's process decides by its own clock that a hold is lost, at the latest at the deadline, even if the backend cannot be reached. Unlock returns by the deadline.",
	sources: []string{chubby, mostNews},
	needs:   []need{kills, expire},
	body:    holdsInOutage,
}, {
	name:    "the lock can be taken after a restart",
	promise: "What an outage left behind expires within one TTL.",
	sources: []string{zkRecipe, zkDeadlock},
	needs:   []need{kills},
	body:    lockAfterRestart,
}, {
	name:      "a hold lasts though the server restarts with its data",
	promise:   "A lock is held by at most one holder, even if the server crashes.",
	sources:   []string{redlock, antirez},
	needs:     []need{kills},
	shows:     locker.Failover,
	condition: "the server crashes and keeps its data",
	body:      func(e *env) { e.survives(func() { e.kill()() }) },
}, {
	name:      "tokens rise though the server restarts with its data",
	promise:   "A hold's token is larger than that of every earlier hold of the name.",
	sources:   []string{kleppmann},
	needs:     []need{kills, tokens},
	shows:     locker.Fencing,
	condition: "the server crashes and keeps its data",
	body:      func(e *env) { e.risesThrough(func() { e.kill()() }) },
}, {
	name:      "a hold lasts though the server loses its data",
	promise:   "A lock is held by at most one holder, even if the server loses its data.",
	sources:   []string{redlock},
	needs:     []need{wipes},
	condition: "the server loses its data",
	body:      func(e *env) { e.survives(func() { e.wipe()() }) },
}, {
	name:      "tokens rise though the server loses its data",
	promise:   "Tokens rise even if data are lost.",
	sources:   []string{kleppmann},
	needs:     []need{wipes, tokens},
	shows:     locker.FencingDurable,
	condition: "the server loses its data",
	body:      func(e *env) { e.risesThrough(func() { e.wipe()() }) },
}, {
	name:      "a hold lasts though the server that lags most takes over",
	promise:   "A lock stays exclusive when a server is lost: the server that takes over knows of every hold.",
	sources:   []string{callMe, redlock},
	needs:     []need{failsOver},
	shows:     locker.Failover,
	condition: "failover",
	body: func(e *env) {
		if e.grace > 0 { // the TTL is in use before, as TTLs are
			e.party("D", e.name(), 2*e.long).take()
		}
		e.survives(e.failOver())
	},
}, {
	name:      "tokens rise though the server that lags most takes over",
	promise:   "Tokens rise even if data are lost.",
	sources:   []string{callMe, kleppmann},
	needs:     []need{failsOver, tokens},
	shows:     locker.FencingDurable,
	condition: "failover",
	body:      func(e *env) { e.risesThrough(e.failOver()) },
}, {
	name:    "Unlock never says nil if a failover forgot the hold",
	promise: "In doubt Unlock returns ErrLost, never nil: for example, if a server that did not know the hold took over, and another owner has the lock.",
	sources: []string{contract, callMe},
	needs:   []need{failsOver},
	body:    func(e *env) { e.unlocksForgotten(false) },
}, {
	name:    "an Unlock that is sent again never says nil if a failover forgot the hold",
	promise: "A release that is sent again succeeds if the first one was applied. But if a server that did not know the hold took over, Unlock returns ErrLost, never nil.",
	sources: []string{contract, callMe},
	needs:   []need{failsOver, links},
	body:    func(e *env) { e.unlocksForgotten(true) },
}, {
	name:      "a hold lasts though the server's clock jumps forward",
	promise:   "A hold lasts one TTL, even if a wall clock is set.",
	sources:   []string{kleppmann, antirez},
	needs:     []need{clocks},
	shows:     locker.Exclusive,
	condition: "the server's clock jumps",
	body:      func(e *env) { e.survives(func() { e.moveClock(4 * e.long) }) },
}, {
	name:      "a hold expires though the server's clock jumps back",
	promise:   "A hold lasts one TTL unless extended; then the lock is free.",
	sources:   []string{kleppmann},
	needs:     []need{clocks, expire},
	condition: "the server's clock jumps",
	body:      expiresOnBackwardClock,
}, {
	name:      "tokens rise though the server's clock jumps back",
	promise:   "A hold's token is larger than that of every earlier hold of the name.",
	sources:   []string{kleppmann},
	needs:     []need{clocks, tokens},
	shows:     locker.Fencing,
	condition: "the server's clock jumps",
	body:      func(e *env) { e.risesThrough(func() { e.moveClock(-time.Hour) }) },
}, {
	name:      "tokens rise though the server's clock was days ahead for a while",
	promise:   "A hold's token is larger than that of every earlier hold of the name, even if the server forgets the name.",
	sources:   []string{kleppmann},
	needs:     []need{clocks, tokens},
	shows:     locker.Fencing,
	condition: "the server's clock jumps",
	body:      risesAfterClockWasAhead,
}, {
	name:    "a hold that was ended behind its holder's back is lost",
	promise: "A hold that the backend has ended is lost: Extend and Unlock say ErrLost.",
	sources: []string{mutexUnlock, jepsenEtcd},
	needs:   []need{revokes},
	body:    revoked,
}, {
	name:    "a waiter gets a lock that was taken from its holder",
	promise: "Lock waits until the caller has the lock, and no longer.",
	sources: []string{jepsenEtcd},
	needs:   []need{revokes, tokens},
	body:    revokedUnderWaiter,
}}

// down is how long servers that were killed stay so in these scenarios: a good while for a client.
const down = 300 * time.Millisecond

func outage(e *env) {
	a := e.party("A", e.name(), e.long)
	a.take() // there is a connection
	a.release()
	restart := e.kill()
	ctx, cancel := context.WithTimeoutCause(e.Context(), down, errStop)
	defer cancel()
	start := time.Now()
	err := a.lock(ctx)
	switch took := time.Since(start); {
	case err == nil:
		e.failf("A's Lock succeeded though no server runs")
	case errors.Is(err, locker.ErrHeld):
		e.failf("A's Lock, when nobody had the lock and no server ran: %v; want no ErrHeld", err)
	case ctx.Err() != nil && !(errors.Is(err, context.DeadlineExceeded) && errors.Is(err, errStop)):
		e.failf("A's Lock, when its ctx was over, with a cause: %v; want an error that matches both", err)
	case took > down+e.prompt:
		e.doubtf("A's Lock took %v, with a ctx of %v", took, down)
	}
	if err := a.tryLock(e.Context()); !isSkip(err) && (err == nil || errors.Is(err, locker.ErrHeld)) {
		e.failf("A's TryLock, when nobody had the lock and no server ran: %v; want an error, and not ErrHeld", says(err))
	}
	restart()
	a.afterOutage("the server runs again")
	a.release()
}

func holdsInOutage(e *env) {
	name := e.name()
	a, b := e.party("A", name, e.ttl), e.party("B", e.name(), e.ttl)
	a.take()
	b.take()
	restart := e.kill()
	start := time.Now()
	if err := b.unlock(); err == nil {
		e.failf("B's Unlock said nil though no server runs")
	}
	if took := time.Since(start); took > e.ttl+pause {
		e.doubtf("B's Unlock took %v, with a TTL of %v", took, e.ttl)
	}
	time.Sleep(time.Until(start.Add(e.ttl)))
	if token := a.token(); token != 0 {
		e.doubtf("A's token, one TTL of %v after the server ended, is %d; want 0", e.ttl, token)
	}
	restart()
	a.want("Unlock, past its TTL", a.unlock(), locker.ErrLost)
	c := e.party("C", name, e.ttl)
	c.afterOutage("the server runs again, and A's hold is over")
	c.release()
}

func lockAfterRestart(e *env) {
	name := e.name()
	ttl := e.lifetime(time.Second)
	a, b, c := e.party("A", name, ttl), e.party("B", name, ttl), e.party("C", name, ttl)
	a.take()
	waiting := b.start(e.Context())
	time.Sleep(e.settle())
	restart := e.kill()
	time.Sleep(down)
	restart()
	_ = a.unlock()
	var err error
	select {
	case err = <-waiting:
	case <-time.After(e.patience + e.grace):
		e.doubtf("%v after a restart, B, who waits, has neither the lock nor an error", e.patience+e.grace)
	}
	if err == nil {
		_ = b.unlock() // nil, or lost
	}
	for _, p := range []*party{c, b, a} {
		p.afterOutage("the server runs again, and nobody has the lock")
		p.release()
	}
}

// survives has something befall the backend while A holds, and B try to get the lock, until A's hold is about to end, or
// C has had another lock for a while: as long as nobody gets any, a refusal of B's says nothing.
func (e *env) survives(befalls func()) {
	name, ttl := e.name(), 2*e.long // servers may take a while to come back
	a, b, c := e.party("A", name, ttl), e.party("B", name, ttl), e.party("C", e.name(), ttl)
	a.take()
	until := time.Now().Add(ttl)
	befalls()
	if !time.Now().Before(until) {
		e.doubtf("what befell the backend took longer than A's hold, %v", ttl)
	}
	ctx, cancel := context.WithDeadline(e.Context(), until.Add(-pause))
	defer cancel()
	e.spawn(func() {
		if c.lockAtLast(ctx) == nil {
			time.AfterFunc(e.prompt, cancel)
		}
	})
	a.outlasts(ctx, b)
	_ = a.unlock()
	b.afterOutage("A has unlocked")
	_ = b.unlock()
}

// unlocksForgotten has A unlock when the server that lags most has taken over, and has granted B
// the lock, if it does. That server knows of an earlier hold of the name. With again A's release is
// sent twice, because the first reply is lost.
func (e *env) unlocksForgotten(again bool) {
	name, ttl := e.name(), 3*e.long // servers may take a while to come back
	if e.grace > 0 {
		ttl = e.grace // a longer TTL would make a longer one
	}
	a, unlock := e.party("A", name, ttl), func(a *party) error { return a.unlock() }
	if again {
		linked, w := e.linked("A", name, ttl)
		a, unlock = linked, func(a *party) error {
			if l, ok := power.Of[power.Wanter](a.l); ok { // it asks the server that decides now, and so has a connection to that
				_ = l.Wanted()
				time.Sleep(3 * e.settle())
			}
			w.loseReplies()
			stop := time.AfterFunc(settle, w.mend)
			defer stop.Stop()
			return a.unlock()
		}
	}
	b, c := e.party("B", name, ttl), e.party("C", e.name(), ttl)
	a.take()
	a.release()
	fail := e.failOver()
	a.take()
	fail()
	c.afterOutage("a server took over")
	_ = c.unlock()
	if b.lockWithin(e.prompt) != nil { // nothing is forgotten
		_ = a.unlock()
		return
	}
	switch err := unlock(a); {
	case err == nil:
		e.failf("a failover forgot A's hold, and B has the lock; A's Unlock said nil")
	case errors.Is(err, locker.ErrNotHeld):
		e.failf("A's Unlock of a hold that a failover forgot: %v; want ErrLost", err)
	}
	b.still("A has unlocked what it lost")
	_ = b.unlock()
}

// risesThrough has something befall the backend between two holds.
func (e *env) risesThrough(befalls func()) {
	a, b := e.rivals(e.long, e.long)
	var last uint64
	for range 3 {
		a.take()
		last = a.token()
		a.release()
	}
	befalls()
	b.takesAbove(last, "A has unlocked")
}

// risesAfterClockWasAhead gives a backend that remembers a name for minutes or hours the chance to forget its last token, which may be
// days ahead of the clock that then is right again.
func risesAfterClockWasAhead(e *env) {
	a, b := e.rivals(e.long, e.long)
	c := e.party("C", e.name(), e.long)
	for range 3 {
		a.take()
		a.release()
	}
	back := e.moveClock(72 * time.Hour)
	a.afterOutage("the server's clock was moved 3 days ahead")
	last := a.token()
	a.release()
	further := e.moveClock(time.Hour)
	c.afterOutage("the server's clock was moved one hour further")
	c.release()
	time.Sleep(2 * e.settle()) // servers look in turns for what has expired
	further()
	back()
	b.takesAbove(last, "the server's clock is right again, and A has unlocked")
}

// expiresOnBackwardClock has a holder crash, and the clock by which its hold is to end go back.
func expiresOnBackwardClock(e *env) {
	a, b := e.rivals(e.ttl, e.ttl)
	a.take()
	e.moveClock(-time.Hour)
	if !time.Now().Before(a.until()) {
		e.doubtf("A's hold, with a TTL of %v, was over before the clock was set back", e.ttl)
	}
	b.lockBy(e.ttl+slack(e.ttl), "A, whose TTL is %v, was heard of no more", e.ttl)
	b.release()
}

func revoked(e *env) {
	name := e.name()
	a, b := e.party("A", name, e.long), e.party("B", e.name(), e.long)
	a.take()
	b.take()
	e.revoke(a.name, b.name)
	a.want("Extend of a hold that was ended at the server", a.extend(), locker.ErrLost)
	a.wantNoToken("after Extend said ErrLost")
	a.want("Unlock of a hold that was ended at the server", a.unlock(), locker.ErrLost)
	b.want("Unlock of a hold that was ended at the server", b.unlock(), locker.ErrLost)
	a.promptly("its lost hold was unlocked")
	a.release()
}

func revokedUnderWaiter(e *env) {
	a, b := e.rivals(e.long, e.long)
	a.take()
	token := a.token()
	waiting := b.start(e.Context())
	time.Sleep(e.settle())
	e.revoke(a.name)
	b.granted(waiting, e.long+e.patience, "A's hold, with a TTL of %v, was ended at the server", e.long)
	if now := b.token(); now <= token {
		e.failf("A's token was %d, and that of B, after A's hold was ended, is %d", token, now)
	}
	a.want("Unlock, when B has the lock", a.unlock(), locker.ErrLost)
	b.release()
}
