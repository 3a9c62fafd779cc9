package stories

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/go-locker/locker/internal/history"
)

// moment is one to tell of.
type moment struct {
	at   int64
	tell func()
}

// moments are all there is to tell of, in order.
func (t *teller) moments() []moment {
	var all []moment
	add := func(at int64, tell func()) { all = append(all, moment{at, tell}) }
	for _, e := range t.rec.Events {
		if i := t.client(e); i != nobody {
			t.call(i, e, add)
		}
	}
	for _, f := range t.rec.Faults {
		t.addFault(f, add)
	}
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	return all
}

// promptly is how long a Lock takes that does not wait.
const promptly = 50 * time.Millisecond

func (t *teller) call(i int, e history.Event, add func(int64, func())) {
	switch e.Op {
	case history.OpLock, history.OpTryLock:
		if time.Duration(e.Return-e.Call) > promptly {
			add(e.Call, func() { t.asks(i, e) })
		}
		if e.Err == history.NoErr {
			add(e.Return, func() { t.granted(i, e) })
		} else {
			add(e.Return, func() { t.notGranted(i, e) })
		}
	case history.OpToken:
		add(e.Return, func() { t.looks(i, e) })
	case history.OpUnlock:
		if e.Err == history.NoErr { // another may have the lock before it returns
			add(e.Call, func() { t.unlocks(i, e) })
		} else {
			add(e.Return, func() { t.unlocks(i, e) })
		}
	case history.OpRead:
		add(e.Return, func() { t.reads(i, e) })
	case history.OpWrite:
		add(e.Return, func() { t.writes(i, e) })
	}
}

func (t *teller) asks(i int, e history.Event) {
	if t.lanes[servers].state.Kind != given || t.owner == i {
		return // it gets the lock, as soon as it is connected
	}
	t.processes[i].asking = true
	t.set(i, waits, i, "waits for the lock")
	t.step(i, "", "%s calls %s, and waits: the lock is %s's.", t.who(i), e.Op, t.who(t.owner))
}

// granted has the hold's token from the look that follows.
func (t *teller) granted(i int, e history.Event) {
	p := &t.processes[i]
	*p = process{grant: e, token: t.tokenOf(e)}
	before := t.owner
	t.owner = i
	t.set(i, holds, i, "holds the lock, token %s", t.token(p.token))
	t.set(servers, given, i, "%s has the lock, token %s", t.who(i), t.token(p.token))
	if before == nobody || before == i {
		t.step(servers, "", "%s gets the lock, for a TTL of %s, with the token %s.", t.who(i), lasts(int64(t.ttl(i))), t.token(p.token))
		return
	}
	other := t.processes[before]
	if t.lanes[before].state.Kind == holds {
		t.set(before, stale, before, "believes that it holds, token %s", t.token(other.token))
	}
	left := other.grant.Call + int64(t.ttl(before)) - e.Return
	if left <= 0 {
		t.step(servers, "", "%s's TTL of %s is over. %s gets the lock, with a %s token, %s.",
			t.who(before), lasts(int64(t.ttl(before))), t.who(i), comparison(p.token, other.token), t.token(p.token))
		return
	}
	t.step(servers, markFault, "%s gets the lock, too, with a %s token, %s%s. For %s, its hold has %s left.",
		t.who(i), comparison(p.token, other.token), t.token(p.token), t.because(before), t.who(before), lasts(left))
}

func comparison(token, than uint64) string {
	if token > than {
		return "larger"
	}
	return "smaller"
}

// tokenOf is the token that a client saw first after it was granted a lock.
func (t *teller) tokenOf(grant history.Event) uint64 {
	for _, e := range t.rec.Events {
		if e.Client == grant.Client && e.Op == history.OpToken && e.Call >= grant.Return && e.Token > 0 {
			return e.Token
		}
	}
	return 0
}

func (t *teller) notGranted(i int, e history.Event) {
	waited := t.processes[i].asking
	again := t.failed == i
	t.processes[i].asking = false
	t.set(i, idle, nobody, "has nothing")
	switch {
	case waited && t.owner != nobody:
		t.step(i, "", "%s has waited for %s, and gives up. %s still has the lock.", t.who(i), lasts(e.Return-e.Call), t.who(t.owner))
	case again: // one sentence for all
	case e.Err == history.IsHeld:
		t.step(i, "", "%s calls %s, and is told that another has the lock.", t.who(i), e.Op)
	default:
		t.step(i, "", "%s calls %s, which fails: the servers do not grant anything just now. It tries again.", t.who(i), e.Op)
	}
	t.failed = i
}

// looks tells nothing new of a hold that is as it was.
func (t *teller) looks(i int, e history.Event) {
	p, kind := &t.processes[i], t.lanes[i].state.Kind
	switch {
	case e.Token == 0 && (kind == holds || kind == stale):
		t.set(i, lost, i, "knows that its hold is lost")
		t.step(i, "", "%s looks at its hold: it is lost.", t.who(i))
	case e.Token > 0 && t.owner != i && !p.looked:
		p.looked = true
		t.step(i, markSpoilt, "%s looks at its hold: it has the token %s, and nobody has told it otherwise. Two hold the lock.", t.who(i), t.token(e.Token))
	}
}

func (t *teller) unlocks(i int, e history.Event) {
	switch e.Err {
	case history.NoErr:
		t.set(i, idle, nobody, "has nothing")
		if t.owner == i {
			t.owner = nobody
			t.set(servers, free, nobody, "the lock is free")
		}
		t.step(i, "", "%s calls Unlock. The lock is free.", t.who(i))
	case history.IsLost:
		t.set(i, lost, i, "knows that its hold is lost")
		t.step(i, "", "%s calls Unlock, and is told that its hold was lost.", t.who(i))
	}
}

func (t *teller) reads(i int, e history.Event) {
	r := t.resources[e.Fenced]
	r.read[i] = r.writes
	if e.Fenced {
		r.largest = max(r.largest, e.Token)
		t.set(r.lane, t.lanes[r.lane].state.Kind, r.by, "value %d, largest token %s", e.Value, t.token(r.largest))
		t.step(r.lane, "", "%s reads the value %d of the resource that checks tokens, and shows its own, %s. It is going to write %d.", t.who(i), e.Value, t.token(e.Token), e.Value+1)
		return
	}
	t.set(r.lane, t.lanes[r.lane].state.Kind, r.by, "value %d", e.Value)
	t.step(r.lane, "", "%s reads the value %d. It is going to write %d.", t.who(i), e.Value, e.Value+1)
}

func (t *teller) writes(i int, e history.Event) {
	r := t.resources[e.Fenced]
	overwritten := r.by != nobody && r.by != i && r.read[i] < r.writes
	if e.Err == history.IsStale {
		t.step(r.lane, markRefused, "%s writes %d, with the token %s. The resource has seen %s, which is larger, and refuses.%s",
			t.who(i), e.Value, t.token(e.Token), t.token(r.largest), t.stays(r))
		return
	}
	r.by, r.largest = i, max(r.largest, e.Token)
	r.writes++
	switch {
	case overwritten && !e.Fenced:
		t.set(r.lane, spoilt, i, "value %d, and an update is lost", e.Value)
		t.step(r.lane, markSpoilt, "%s writes %d. Nobody checks its token. What the other has written is lost.", t.who(i), e.Value)
	case e.Fenced:
		t.set(r.lane, written, i, "value %d, largest token %s", e.Value, t.token(r.largest))
		t.step(r.lane, markAccepted, "%s writes %d, with the token %s. The resource has seen no larger one, and accepts.", t.who(i), e.Value, t.token(e.Token))
	default:
		t.set(r.lane, written, i, "value %d", e.Value)
		t.step(r.lane, markAccepted, "%s writes %d.", t.who(i), e.Value)
	}
}

// stays tells whose write a refusal has saved.
func (t *teller) stays(r *resource) string {
	if r.by == nobody {
		return ""
	}
	return fmt.Sprintf(" What %s has written stays.", t.who(r.by))
}
