package conformance

import (
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

var lossRows = []row{{
	name:    "Lost fires no later than Deadline",
	promise: "Lost fires no later than the hold's deadline.",
	sources: []string{mostNews, chubby},
	needs:   []need{expire},
	body:    lostInTime,
}, {
	name:    "Lost does not fire while the hold is extended",
	promise: "Lost fires when the hold ends before its Unlock, and not while it lasts.",
	sources: []string{mostNews},
	body:    lostNotWhileHeld,
}, {
	name:    "Lost is of the current hold",
	promise: "Lost is about the current hold: the channel of an earlier hold says nothing about this one.",
	sources: []string{contract},
	needs:   []need{expire},
	body:    lostOfCurrentHold,
}, {
	name:    "Deadline is at most one TTL away, and at least half",
	promise: "A hold lasts one TTL, counted from before the request that granted it; Lock succeeds only with at least half a TTL left.",
	sources: []string{antirez},
	body:    deadlineInBounds,
}, {
	name:    "Extend moves Deadline forward",
	promise: "Extend makes the hold last one TTL from now; deadlines never move backwards.",
	sources: []string{contract},
	body:    deadlineMovesForward,
}}

// pause is how late this machine may run a timer in most of a few trials.
const pause = 200 * time.Millisecond

// tells skips the scenario unless the Locker has Lost, and Deadline.
func (p *party) tells() {
	if _, ok := power[loser](p.l, stdio.CanLost); !ok {
		p.env.skip("the Locker has no Lost")
	}
	p.tellsDeadline()
}

func (p *party) tellsDeadline() {
	if _, ok := power[deadliner](p.l, stdio.CanDeadline); !ok {
		p.env.skip("the Locker has no Deadline")
	}
}

// lostBy ends the trial unless Lost fires by the deadline, give or take a pause of this machine.
// The deadline was asked for while the hold lasted.
func (p *party) lostBy(deadline time.Time, lost <-chan struct{}) {
	if deadline.IsZero() {
		p.env.doubtf("%s's hold had no Deadline: it was over before it should have been", p.who)
	}
	select {
	case <-lost:
		if late := time.Since(deadline); late > pause {
			p.env.doubtf("%s's Lost fired %v after Deadline", p.who, late)
		}
	case <-time.After(time.Until(deadline) + 2*p.ttl + pause):
		p.env.doubtf("%s's Lost has not fired %v after Deadline", p.who, time.Since(deadline))
	}
}

func lostInTime(e *env) {
	a := e.party("A", e.name(), e.ttl)
	a.tells()
	a.take()
	a.lostBy(a.deadline(), a.lost())
	a.wantNoToken("after Lost has fired")
	a.want("Extend after Lost has fired", a.extend(), locker.ErrLost)
	a.want("Unlock after Lost has fired", a.unlock(), locker.ErrLost)
}

func lostNotWhileHeld(e *env) {
	ttl := e.lifetime(400 * time.Millisecond)
	a := e.party("A", e.name(), ttl)
	a.tells()
	a.take()
	lost := a.lost()
	for end := time.Now().Add(3 * ttl / 2); time.Now().Before(end); {
		a.prolong()
		select {
		case <-lost:
			e.doubtf("A's Lost fired though A extends every %v a hold of %v", ttl/4, ttl)
		case <-time.After(ttl / 4):
		}
	}
	a.release()
}

func lostOfCurrentHold(e *env) {
	a := e.party("A", e.name(), e.ttl)
	a.tells()
	a.take()
	a.lostBy(a.deadline(), a.lost())
	_ = a.unlock()
	a.take()
	select {
	case <-a.lost():
		a.prolong() // is it lost?
		e.doubtf("A's Lost has fired at the beginning of its second hold")
	default:
	}
	_ = a.unlock()
}

func deadlineInBounds(e *env) {
	for _, ttl := range []time.Duration{e.ttl, e.long} {
		a := e.party("A", e.name(), ttl)
		a.tellsDeadline()
		a.take()
		e.within(a, "Lock")
		a.prolong()
		e.within(a, "Extend")
		a.release()
	}
}

// within ends the trial if the deadline is not what op may have made it just now. The request was sent
// before op returned; how long before cannot be known.
func (e *env) within(a *party, op string) {
	now, deadline := time.Now(), a.deadline()
	left := deadline.Sub(now)
	if left > a.ttl {
		e.failf("after %s with a TTL of %v A's Deadline is %v away", op, a.ttl, left)
	}
	if left < a.ttl/2 {
		e.doubtf("after %s with a TTL of %v A's Deadline is only %v away", op, a.ttl, left)
	}
}

func deadlineMovesForward(e *env) {
	a := e.party("A", e.name(), e.long)
	a.tellsDeadline()
	a.take()
	first := a.deadline()
	last := first
	for range 10 {
		time.Sleep(5 * time.Millisecond)
		a.prolong()
		now := a.deadline()
		if back := last.Sub(now); back > 0 {
			e.doubtf("A's Extend moved Deadline back by %v", back)
		}
		last = now
	}
	if !last.After(first) {
		e.doubtf("ten Extends in more than 50 ms did not move A's Deadline forward")
	}
	a.release()
}
