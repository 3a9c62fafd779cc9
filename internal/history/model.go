package history

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Demand is how much is asked of a history.
type Demand string

const (
	// Exclusive demands that who is told that it holds is the only one, at some moment of each call
	// that says so.
	Exclusive Demand = "exclusive"
	// Revocable is of histories in which holds are ended behind their holders' backs. A token that
	// needs no request may be believed for up to a TTL longer; all that the backend was asked for
	// is exclusive.
	Revocable Demand = "revocable"
	// Undisturbed is Exclusive where there were no faults. A hold lasts until its Unlock is called,
	// or as long as it is assured, whatever its client is told: nobody else has ended it.
	Undisturbed Demand = "undisturbed"
	// Fenced demands that the tokens rise with every hold.
	Fenced Demand = "fenced"
)

// move is a step of the model: an owner-aware mutex with fencing, one for each name. In a history
// of readers and writers it grants shares, too.
type move struct {
	kind  moveKind
	hold  int    // which, among those of the history
	share bool   // it is one
	token uint64 // 0: not known
	text  string
}

type moveKind int

const (
	takes    moveKind = iota // nobody holds, or but shares if it is one; the token is larger than all before, or that of the shares
	confirms                 // this one holds, with that token
	weakens                  // this one holds alone, and then it has a share
	ends                     // this one holds, and then it does not
	mints                    // the token is larger than all before
	breaks                   // never happens
)

// mutex is the model's state. Holds count from 1.
type mutex struct {
	holder int
	shares string // the holds that have one, as in "<3><7>"
	token  uint64 // of the holder, or of the shares; 0: not known
	last   uint64 // the largest that is known
	phase  uint64 // of the last shares, if nobody has held alone since; 0: not known
}

func (m mutex) step(v move) (mutex, bool) {
	switch v.kind {
	case takes:
		if v.share {
			return m.grantShare(v)
		}
		next := mutex{holder: v.hold, token: v.token, last: max(m.last, v.token)}
		return next, m.free() && (v.token == 0 || v.token > m.last)
	case confirms:
		return m, m.holds(v) && (v.token == 0 || v.token == m.token)
	case weakens:
		next := mutex{shares: entry(v), token: m.token, last: m.last, phase: m.token}
		return next, m.holder == v.hold
	case ends:
		next := mutex{last: m.last, phase: m.phase, shares: strings.Replace(m.shares, entry(v), "", 1)}
		if next.shares != "" {
			next.token = m.token
		}
		return next, m.holds(v)
	case mints:
		return mutex{last: v.token}, v.token > m.last
	default:
		return m, false
	}
}

// grantShare is a step: shares at the same time have one token, and those of a phase may.
func (m mutex) grantShare(v move) (mutex, bool) {
	next := m
	next.shares += entry(v)
	switch {
	case v.token == 0:
		return next, m.holder == 0
	case m.shares != "" && m.token != 0:
		return next, v.token == m.token
	}
	next.token, next.phase, next.last = v.token, v.token, max(m.last, v.token)
	return next, m.holder == 0 && (v.token > m.last || v.token == m.phase)
}

func (m mutex) free() bool { return m.holder == 0 && m.shares == "" }

func (m mutex) holds(v move) bool { return m.holder == v.hold || strings.Contains(m.shares, entry(v)) }

// entry is a hold among the shares.
func entry(v move) string { return fmt.Sprintf("<%d>", v.hold) }

var model = porcupine.Model{
	Init: func() any { return mutex{} },
	Step: func(state, input, _ any) (bool, any) {
		next, ok := state.(mutex).step(input.(move))
		return ok, next
	},
}

// ops are the operations of one hold. A history that keeps the model keeps it without any one hold.
type ops []porcupine.Operation

// raw returns the holds of each name, in the order in which they were asked for.
func (h *History) raw() map[string][]*hold {
	byClient := make([][]Event, len(h.Clients))
	tokens := slices.ContainsFunc(h.Events, func(e Event) bool { return e.Token > 0 })
	for _, e := range h.Events {
		if e.Op == OpToken && !tokens {
			continue // from a Locker that has none, which other scenarios judge, 0 is no news of a loss
		}
		byClient[e.Client] = append(byClient[e.Client], e)
	}
	byName := map[string][]*hold{}
	for id, c := range h.Clients {
		byName[c.Name] = append(byName[c.Name], holdsOf(id, c, byClient[id])...)
	}
	id := 0
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		ts := byName[name]
		slices.SortStableFunc(ts, func(a, b *hold) int { return int(a.grant.Call - b.grant.Call) })
		if h.Demand == Revocable {
			h.overstayed(ts)
		}
		for _, t := range ts {
			if h.Demand == Undisturbed {
				t.assured = int64(Assured(h.Clients[t.client].TTL))
			}
			id++
			t.id = id
		}
	}
	return byName
}

// refusedFree returns an attempt that was answered "held" though nobody can have held the lock
// meanwhile, as a breach, or nil. A hold is in the way from the call of its take to the return of
// its Unlock. What failed may have taken the lock all the same, and left it for a TTL.
func (h *History) refusedFree(name string, ts []*hold) *hold {
	type interval struct{ from, to int64 }
	leftover := func(e Event) int64 { return e.Return + int64(h.Clients[e.Client].TTL+Coarse) }
	var taken []interval
	for _, t := range ts {
		switch {
		case t.grant.Op == "":
		case t.unlock == nil:
			taken = append(taken, interval{t.grant.Call, math.MaxInt64})
		case t.unlock.Err == NoErr:
			taken = append(taken, interval{t.grant.Call, t.unlock.Return})
		default:
			taken = append(taken, interval{t.grant.Call, leftover(*t.unlock)})
		}
	}
	var refused []Event
	for _, e := range h.Events {
		takes := e.Op == OpLock || e.Op == OpTryLock || e.Op == OpRLock || e.Op == OpTryRLock
		if takes && e.Err != NoErr && h.Clients[e.Client].Name == name {
			taken = append(taken, interval{e.Call, leftover(e)})
			if e.Err == IsHeld {
				refused = append(refused, e)
			}
		}
	}
	for _, e := range refused {
		meanwhile := func(i interval) bool { return i.from <= e.Return && e.Call <= i.to }
		own := slices.IndexFunc(taken, meanwhile) // if there is no other
		if !slices.ContainsFunc(taken[own+1:], meanwhile) {
			return &hold{client: e.Client, breaches: []breach{{e, "nobody held the lock, or tried to take it"}}}
		}
	}
	return nil
}

// holds returns what the model is asked of each name.
func (h *History) holds() map[string][]ops {
	all := map[string][]ops{}
	for name, ts := range h.raw() {
		for _, t := range ts {
			if made := h.opsOf(t); len(made) > 0 {
				all[name] = append(all[name], made)
			}
		}
	}
	return all
}

// opsOf turns what a client was told of a hold into moves.
func (h *History) opsOf(t *hold) ops {
	var s ops
	add := func(kind moveKind, call, ret int64, token uint64, text string) {
		s = append(s, porcupine.Operation{
			ClientId: t.client, Call: call, Return: ret, Input: move{kind, t.id, t.shared(), token, text},
		})
	}
	for _, b := range t.breaches {
		add(breaks, b.Call, b.Return, b.Token, b.String()+", but "+b.why)
	}
	if t.grant.Op == "" {
		return s
	}
	text := fmt.Sprintf("%s: nil, token %d", t.grant.Op, t.token)
	if t.token == 0 {
		text = t.grant.Op + ": nil, token never seen"
	}
	if h.Demand == Fenced {
		if t.token > 0 {
			add(mints, t.grant.Call, t.grant.Return, t.token, text)
		}
		return s
	}
	add(takes, t.grant.Call, t.grant.Return, t.token, text)
	confirmed := t.confirms
	if h.Demand == Revocable {
		confirmed = t.prolonged()
	}
	for _, e := range confirmed {
		kind := confirms
		if e.Op == OpDowngrade && !t.shared() {
			kind = weakens
		}
		add(kind, e.Call, e.Return, e.Token, e.String())
	}
	if from, to, ok := t.end(confirmed); ok {
		add(ends, from, to, 0, t.ending())
	}
	return s
}

// prolonged are the confirmations that the backend was asked for.
func (h *hold) prolonged() []Event {
	return slices.DeleteFunc(slices.Clone(h.confirms), func(e Event) bool { return e.Op != OpExtend })
}

// ending says how the hold ended.
func (h *hold) ending() string {
	if h.toldLost > 0 {
		return "told of the loss"
	}
	return h.unlock.String()
}

// String is the call and what it returned.
func (e Event) String() string {
	switch {
	case e.Op == OpToken:
		return fmt.Sprintf("FencingToken: %d", e.Token)
	case e.Op == OpLost:
		return "Lost has fired"
	case e.Err == NoErr:
		return e.Op + ": nil"
	case e.Err == OtherErr:
		return e.Op + ": " + e.Text
	default:
		return fmt.Sprintf("%s: %s", e.Op, e.Err)
	}
}

// overstayed notes who believed in a hold longer than a TTL after another got the lock: each
// confirmation by the backend was before that.
func (h *History) overstayed(ts []*hold) {
	for _, t := range ts {
		if len(t.confirms) == 0 {
			continue
		}
		last := t.confirms[len(t.confirms)-1]
		allowed := int64(h.Clients[t.client].TTL + Coarse)
		for _, o := range ts {
			if o.token > t.token && last.Call > o.grant.Return+allowed {
				t.breach(last, fmt.Sprintf("another got the lock, with token %d, more than a TTL before", o.token))
				break
			}
		}
	}
}

// CheckTime bounds the check of one name. Histories are so short that it takes a fraction of that.
const CheckTime = 30 * time.Second

// Judgement is what the model says of a history.
type Judgement struct {
	Operations int
	Name       string // of the lock whose history is refused
	// InDoubt is set if the history is refused only because an attempt was answered "held" though the
	// lock was free. On a busy machine, what an earlier attempt left may stay for longer than a TTL.
	InDoubt bool

	result  porcupine.CheckResult
	witness []ops // a few of them, which no lock can have granted
}

// Refused reports whether no lock can have had the history.
func (j Judgement) Refused() bool { return j.result == porcupine.Illegal }

// Undecided reports whether the checker was not sure in time.
func (j Judgement) Undecided() bool { return j.result == porcupine.Unknown }

// Check asks the model.
func (h *History) Check() Judgement { return h.check(CheckTime) }

func (h *History) check(limit time.Duration) Judgement {
	j := Judgement{result: porcupine.Ok}
	all := h.holds()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, s := range all[name] {
			j.Operations += len(s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch legal(all[name], limit) {
		case porcupine.Illegal:
			j.result, j.Name = porcupine.Illegal, name
			j.witness = witness(all[name])
			return j
		case porcupine.Unknown:
			j.result, j.Name = porcupine.Unknown, name
		}
	}
	if h.Demand != Undisturbed {
		return j
	}
	holds := h.raw()
	for _, name := range slices.Sorted(maps.Keys(holds)) {
		if t := h.refusedFree(name, holds[name]); t != nil {
			j.result, j.Name, j.InDoubt, j.witness = porcupine.Illegal, name, true, []ops{h.opsOf(t)}
			return j
		}
	}
	return j
}

// witness is as few of the holds as still break the model, with as few operations of each as
// possible. What is left out can only make it easier to explain the rest.
func witness(holds []ops) []ops {
	bad := func(some []ops) bool { return legal(some, CheckTime/10) == porcupine.Illegal }
	n := sort.Search(len(holds)-1, func(n int) bool { return bad(holds[:n+1]) }) + 1
	holds = holds[:n]
	m := sort.Search(n-1, func(m int) bool { return !bad(holds[m+1:]) })
	holds = slices.Clone(holds[m:])
	const few = 200
	for i := len(holds) - 1; i >= 0 && len(holds) < few; i-- {
		if without := slices.Delete(slices.Clone(holds), i, i+1); bad(without) {
			holds = without
		}
	}
	short := make([]ops, len(holds))
	for i, s := range holds {
		short[i] = s.short()
	}
	if bad(short) {
		return short
	}
	return holds
}

// short leaves the last of what confirmed the hold, and the first breach.
func (s ops) short() ops {
	last, first := -1, -1
	for i, op := range s {
		switch op.Input.(move).kind {
		case confirms:
			if last < 0 || op.Call >= s[last].Call {
				last = i
			}
		case breaks:
			if first < 0 || op.Call < s[first].Call {
				first = i
			}
		}
	}
	var some ops
	for i, op := range s {
		if kind := op.Input.(move).kind; i == last || i == first || kind != confirms && kind != breaks {
			some = append(some, op)
		}
	}
	return some
}
