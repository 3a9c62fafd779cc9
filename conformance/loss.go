package conformance

import (
	"time"

	"github.com/go-locker/locker"
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
	name:    "Lost tells of the current hold",
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
