package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/internal/stdio"
)

var expiryRows = []row{{
	name:    "a hold expires after its TTL",
	promise: "A hold lasts one TTL unless extended; then the lock is free.",
	sources: []string{redisDocs},
	needs:   []need{expire},
	body:    expires,
}, {
	name:    "a hold does not expire before its TTL",
	promise: "A hold lasts one TTL from just before its request was sent. It may be shorter by TTL/100 + 2 ms, because clocks run at different speeds.",
	sources: []string{antirez},
	needs:   []need{expire},
	body:    expiresNotEarly,
}, {
	name:    "nobody gets the lock before the holder's Deadline",
	promise: "While a hold is not lost, and its Deadline has not passed, nobody else holds the lock.",
	sources: []string{antirez, chubby},
	shows:   locker.Exclusive,
	needs:   []need{expire},
	body:    notBeforeDeadline,
}, {
	name:    "a TTL that is no round number is kept as it is",
	promise: "A hold lasts one TTL: a TTL that the backend cannot keep is refused, not rounded down.",
	sources: []string{contract},
	needs:   []need{expire},
	body:    keepsUnevenTTL,
}, {
	name:    "a long TTL is kept as it is",
	promise: "A hold lasts one TTL: a TTL that is too long for the backend is refused, not shortened.",
	sources: []string{contract, ownPrograms},
	aside:   true,
	needs:   []need{expire},
	body:    keepsLongTTL,
}, {
	name:    "those who find an expired hold exclude one another",
	promise: "When a hold has expired one of those who want the lock gets it, however many find that at the same moment.",
	sources: []string{goLocker, ownPrograms},
	shows:   locker.Exclusive,
	chance:  true,
	aside:   true,
	needs:   []need{expire},
	body:    excludesAtExpiry,
}, {
	name:    "half a minute ends no hold that is extended, no wait, and no order of tokens",
	promise: "Time alone changes nothing: a hold that is extended lasts, Lock waits, and the tokens of a name that was idle go on rising.",
	sources: []string{contract, ownPrograms},
	aside:   true,
	body:    func(e *env) { e.together(e.extendsLong, e.idlesLong) },
}}

// excludesAtExpiry has waiters be there when a hold expires, and then come all at once when it has.
func excludesAtExpiry(e *env) {
	const rounds = 10
	name := e.name()
	a, waiters := e.party("A", name, e.ttl), e.processes(name)
	end := time.Now().Add(halfMinute)
	for round := range rounds {
		if time.Now().After(end) {
			break
		}
		a.take()
		if round%2 == 1 {
			a.awaitExpiry()
		}
		e.disjoint(e.queue(waiters)())
		_ = a.unlock()
	}
}

// extendsLong has B wait for a hold that A extends, if it can: else for one that lasts that long.
func (e *env) extendsLong() {
	e = e.story()
	name, ttl := e.name(), e.lifetime(6*time.Second)
	if !extends.met(e.h) {
		ttl = e.lifetime(2 * halfMinute)
	}
	b := e.party("B", name, ttl)
	a, refusal := e.offered("A", name, ttl)
	if refusal != "" {
		e.Logf("%s", refusal)
		return
	}
	ctx, cancel := context.WithTimeout(e.Context(), halfMinute+e.patience)
	defer cancel()
	done := b.start(ctx)
	for end := time.Now().Add(halfMinute); time.Now().Before(end); {
		a.prolong()
		select {
		case err := <-done:
			e.early(a, b, err)
		case <-time.After(ttl / 8):
		}
	}
	a.release()
	b.granted(done, e.prompt, "A has unlocked")
	b.release()
}

// idlesLong has nobody want the lock between two holds.
func (e *env) idlesLong() {
	e = e.story()
	a, b := e.rivals(e.long, e.long)
	var held sequence
	a.take()
	if !tokens.met(e.h) {
		return
	}
	held.next(a, "A's hold")
	a.release()
	sleepUntil(e.Context(), halfMinute)
	b.take()
	held.next(b, fmt.Sprintf("B's hold, %v later,", halfMinute))
	b.release()
}

func expires(e *env) {
	a, b := e.rivals(e.ttl, e.ttl)
	a.take()
	a.awaitExpiry()
	b.lockBy(e.prompt, "A's hold is over")
	b.release()
}

// expiresNotEarly counts from before there was a client: a session that many holds share may be as old.
func expiresNotEarly(e *env) {
	name := e.name()
	b := e.party("B", name, e.long)
	before := time.Now()
	a := e.party("A", name, e.ttl)
	a.takeOver(b)
	if held := time.Since(before); held < e.ttl-drift(e.ttl) {
		e.doubtf("B got the lock %v after A asked for it, for %v", held, e.ttl)
	}
	b.release()
}

func notBeforeDeadline(e *env) {
	a, b := e.rivals(e.ttl, e.long)
	if _, ok := can[power.Deadliner](a.l, stdio.CanDeadline); !ok {
		e.skip("the Locker has no Deadline")
	}
	a.take()
	deadline := a.deadline()
	lost := a.lost()
	b.lockBy(e.ttl+e.patience, "A's TTL of %v is over", e.ttl)
	got := time.Now()
	select {
	case <-lost: // in time, or for a reason that the contract allows
		if early := deadline.Sub(got); early > 0 {
			e.doubtf("B got the lock %v before A's Deadline; Lost has fired", early)
		}
	default:
		if early := deadline.Sub(got); early > 0 {
			e.doubtf("B got the lock %v before A's Deadline", early)
		}
	}
	b.release()
}

var extendRows = []row{{
	name:    "Extend keeps a hold past its TTL",
	promise: "Extend makes the hold last one TTL from now.",
	sources: []string{contract},
	needs:   []need{extends, expire},
	body:    extendKeeps,
}, {
	name:    "an extended hold lasts one TTL from its Extend, and no longer",
	promise: "Extend makes the hold last one TTL from now.",
	sources: []string{contract},
	needs:   []need{extends, expire},
	body:    extendLasts,
}, {
	name:    "Extend of a hold that expired says ErrLost and does not revive it",
	promise: "Extend never revives a hold that ended.",
	sources: []string{redisDocs},
	needs:   []need{extends, expire},
	body:    extendAfterExpiry,
}, {
	name:    "Extend after a take-over says ErrLost",
	promise: "Extend says ErrLost if another has taken the lock.",
	sources: []string{redisDocs},
	needs:   []need{extends, expire},
	body:    extendAfterTakeOver,
}, {
	name:    "Extend after a take-over leaves the new hold alone",
	promise: "Extend acts on the caller's hold alone, never on another owner's.",
	sources: []string{redisDocs},
	needs:   []need{extends, expire},
	body:    func(e *env) { e.harmless("Extend", (*party).extend, 2*e.ttl) }, // b's hold must not have a's TTL
}, {
	name:    "Extend without a hold says ErrNotHeld",
	promise: "Extend says ErrNotHeld without a hold: before Lock, and after Unlock.",
	sources: []string{mostErrors},
	needs:   []need{extends},
	body:    extendWithoutHold,
}}

func extendKeeps(e *env) {
	name, ttl := e.name(), e.lifetime(400*time.Millisecond) // a pause of the machine is not to end it
	a, b := e.party("A", name, ttl), e.party("B", name, ttl)
	a.take()
	done := b.start(e.Context())
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); {
		a.prolong()
		select {
		case err := <-done:
			e.early(a, b, err)
		case <-time.After(ttl / 4):
		}
	}
	a.release()
	if err := <-done; err != nil {
		e.doubtf("B's Lock: %v", err)
	}
	b.release()
}

// extendLasts has the holder crash after several Extends in a row, when half its TTL was over: they do not add up.
func extendLasts(e *env) {
	name, ttl := e.name(), e.lifetime(400*time.Millisecond)
	a, b := e.party("A", name, ttl), e.party("B", name, ttl)
	a.take()
	time.Sleep(ttl / 2)
	var before time.Time
	for range 4 {
		before = time.Now()
		a.prolong()
	}
	least := ttl - drift(ttl)
	if deadline := a.deadline(); !deadline.IsZero() { // a session may be counted from an earlier contact
		e.within(a, "Extend")
		least = min(least, deadline.Sub(before))
	}
	b.lockBy(ttl+slack(ttl), "A, whose TTL is %v, called the last Extend of four and was heard of no more", ttl)
	if held := time.Since(before); held < least {
		e.doubtf("B got the lock %v after A's Extend, with a TTL of %v; it was to last for %v at least", held, ttl, least)
	}
	b.release()
}

func extendAfterExpiry(e *env) {
	a, b := e.rivals(e.ttl, e.ttl)
	a.take()
	a.awaitExpiry()
	err := a.extend()
	a.want("Extend after its TTL", err, locker.ErrLost)
	b.lockBy(e.prompt, "A's Extend said ErrLost")
	a.want("Extend after a take-over", a.extend(), locker.ErrLost)
	b.release()
}

func extendAfterTakeOver(e *env) {
	a, b := e.rivals(e.ttl, e.long)
	a.takeOver(b)
	a.want("Extend after B took the lock", a.extend(), locker.ErrLost)
	b.release()
	a.want("Extend after B took and unlocked the lock", a.extend(), locker.ErrLost)
}

func extendWithoutHold(e *env) {
	a, b := e.rivals(e.long, e.long)
	a.want("Extend before Lock", a.extend(), locker.ErrNotHeld)
	a.take()
	a.release()
	a.want("Extend after Unlock", a.extend(), locker.ErrNotHeld)
	b.promptly("A's Extend said ErrNotHeld")
	a.want("Extend after Unlock, when B has the lock", a.extend(), locker.ErrNotHeld)
	b.prolong()
	b.release()
}
