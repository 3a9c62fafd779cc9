package conformance

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker"
)

// history is what several clients did, and what they were told, as they saw it. Times are nanoseconds of
// one monotonic clock. It is saved as it is when it fails.
type history struct {
	Seed    uint64        `json:"seed"`
	Demand  demand        `json:"demand"`
	Clients []client      `json:"clients"`
	Faults  []faultRecord `json:"faults"`
	Events  []event       `json:"events"`

	mu    sync.Mutex
	began time.Time
}

// client is one Locker of a history.
type client struct {
	Who    string        `json:"who"`
	Name   string        `json:"name"` // of the lock
	TTL    time.Duration `json:"ttl"`
	Renews bool          `json:"renews,omitempty"`
}

// faultRecord is a fault that came and went.
type faultRecord struct {
	Kind string `json:"kind"` // of Faults, a field
	What string `json:"what"`
	From int64  `json:"from"`
	To   int64  `json:"to"`

	Set    int64 `json:"set,omitempty"`    // when its cause had returned
	Undone int64 `json:"undone,omitempty"` // when its end began
	Mutes  muted `json:"mutes,omitempty"`
	Client int   `json:"client,omitempty"` // whom it was meant for
	Until  int64 `json:"until,omitempty"`  // how long that one was going to hold; 0: it did not hold

	Answered bool `json:"answered,omitempty"` // by a process that was stopped
}

// event is one call, or the moment in which a client saw that Lost had fired.
type event struct {
	Client int    `json:"c"`
	Op     string `json:"op"`
	Call   int64  `json:"call"`
	Return int64  `json:"ret"`
	Said   saying `json:"said,omitempty"`
	Token  uint64 `json:"token,omitempty"` // of FencingToken
	Text   string `json:"text,omitempty"`  // of an error
}

// The operations.
const (
	opLock      = "Lock"
	opTryLock   = "TryLock"
	opRLock     = "RLock"
	opTryRLock  = "TryRLock"
	opDowngrade = "Downgrade"
	opExtend    = "Extend"
	opUnlock    = "Unlock"
	opToken     = "FencingToken"
	opLost      = "Lost" // has fired
)

// saying is what of an error matters here.
type saying string

const (
	saidNil     saying = ""
	saidLost    saying = "lost"
	saidNotHeld saying = "not held"
	saidHeld    saying = "held"
	saidError   saying = "error" // and nobody knows what the backend did
)

func sayingOf(err error) saying {
	switch {
	case err == nil:
		return saidNil
	case errors.Is(err, locker.ErrLost):
		return saidLost
	case errors.Is(err, locker.ErrNotHeld):
		return saidNotHeld
	case errors.Is(err, locker.ErrHeld):
		return saidHeld
	default:
		return saidError
	}
}

// now is the history's clock.
func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) befell(w faultRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Faults = append(h.Faults, w)
}

func (h *history) record(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Events = append(h.Events, e)
}

// tenancy is a hold in a history: from a Lock that said nil to its Unlock, and what was said of it.
type tenancy struct {
	client   int
	token    uint64 // 0: never seen
	grant    event
	confirms []event // FencingTokens that were not 0, Extends that said nil
	extends  []event // that may have extended it
	told     int64   // when the client was told of its loss; 0: never
	assured  int64   // how long a call that said nil holds it, whatever tells of an earlier loss; 0: no time
	unlock   *event
	breaches []breach
}

// breach is what no lock may say, whatever others do.
type breach struct {
	event
	why string
}

// tenancies finds the holds of one client in its events. What was said while nothing was held, and should
// not have been, is in a tenancy without a grant.
func tenancies(id int, c client, events []event) []*tenancy {
	slices.SortStableFunc(events, func(a, b event) int { return int(a.Call - b.Call) })
	current := &tenancy{client: id}
	all := []*tenancy{current}
	for _, e := range events {
		switch e.Op {
		case opLock, opTryLock, opRLock, opTryRLock:
			if e.Said == saidNil {
				current = &tenancy{client: id, grant: e}
				all = append(all, current)
			}
		case opToken:
			current.sampled(e)
		case opLost:
			current.loss(e)
		case opExtend:
			current.extended(e)
		case opDowngrade:
			current.downgraded(e)
		case opUnlock:
			current.unlocked(e)
		}
	}
	for _, t := range all {
		t.review(c)
	}
	return slices.DeleteFunc(all, func(t *tenancy) bool { return t.grant.Op == "" && t.breaches == nil })
}

// open reports whether t may still be held at e: e was not called after its Unlock.
func (t *tenancy) open(e event) bool {
	return t.grant.Op != "" && (t.unlock == nil || e.Call < t.unlock.Return)
}

func (t *tenancy) breach(e event, why string) { t.breaches = append(t.breaches, breach{e, why}) }

func (t *tenancy) sampled(e event) {
	switch {
	case e.Token == 0:
		t.loss(e)
	case !t.open(e):
		t.breach(e, "nothing is held")
	default:
		if t.token == 0 {
			t.token = e.Token
		}
		t.confirms = append(t.confirms, e)
	}
}

// loss takes in that the client was told. What it hears while it unlocks may be of its Unlock.
func (t *tenancy) loss(e event) {
	if t.grant.Op != "" && t.unlock == nil && (t.told == 0 || e.Return < t.told) {
		t.told = e.Return
	}
}

// unlocked comes after what was called before, but some of that may have returned later.
func (t *tenancy) unlocked(e event) {
	if !t.open(e) || t.unlock != nil {
		t.nothingHeld(e)
		return
	}
	t.unlock = &e
	if e.Said == saidNotHeld {
		t.breach(e, "a hold, lost or not, awaits its Unlock")
	}
}

func (t *tenancy) extended(e event) {
	switch {
	case !t.open(e):
		t.nothingHeld(e)
	case e.Said == saidNil:
		t.confirms = append(t.confirms, e)
		t.extends = append(t.extends, e)
	case e.Said == saidLost:
		t.loss(e)
	case e.Said == saidNotHeld:
		t.breach(e, "a hold, lost or not, awaits its Unlock")
	default:
		t.extends = append(t.extends, e)
	}
}

// downgraded takes in a Downgrade that succeeded, or told of a loss. Of any other nobody knows what it did.
func (t *tenancy) downgraded(e event) {
	switch {
	case !t.open(e):
		t.nothingHeld(e)
	case e.Said == saidNil:
		t.confirms = append(t.confirms, e)
	case e.Said == saidLost:
		t.loss(e)
	}
}

// shared reports whether it was granted as a share.
func (t *tenancy) shared() bool { return t.grant.Op == opRLock || t.grant.Op == opTryRLock }

// nothingHeld is an Extend or an Unlock of nothing. It may be unable to ask.
func (t *tenancy) nothingHeld(e event) {
	if e.Said == saidNil || e.Said == saidLost {
		t.breach(e, "nothing is held; want ErrNotHeld")
	}
}

// review looks at what can only be said when all is known.
func (t *tenancy) review(c client) {
	if t.told > 0 && t.unlock != nil && t.told >= t.unlock.Call {
		t.told = 0 // it was said while Unlock was under way
	}
	for _, e := range t.confirms {
		if e.Op == opToken && e.Token != t.token {
			t.breach(e, fmt.Sprintf("the token of this hold was %d", t.token))
		}
		if t.told > 0 && e.Call > t.told {
			t.breach(e, "its loss has been told")
		}
		t.punctual(c, e)
	}
	if t.unlock != nil && t.unlock.Said == saidNil {
		t.punctual(c, *t.unlock)
		if t.told > 0 {
			t.breach(*t.unlock, "its loss has been told")
		}
	}
}

// punctual notes if a hold that nobody extended is confirmed after its TTL and all that is allowed for a
// backend whose clock is coarse.
func (t *tenancy) punctual(c client, e event) {
	if c.Renews {
		return
	}
	last := t.grant.Return
	for _, x := range t.extends {
		if x.Call < e.Return {
			last = max(last, x.Return)
		}
	}
	if late := e.Call - last - int64(c.TTL+coarse); late > 0 {
		t.breach(e, fmt.Sprintf("its TTL of %v ended %v before", c.TTL, time.Duration(late)+coarse))
	}
}

// end is when the hold was over, as far as its client could see; ok is false if it may still be
// held. It was not before the last of the calls that confirmed it, nor before the assured time,
// unless an Unlock was called by then.
func (t *tenancy) end(confirmed []event) (from, to int64, ok bool) {
	switch {
	case t.told > 0:
		to = t.told
	case t.unlock != nil:
		to = t.unlock.Return
	default:
		return 0, 0, false
	}
	from = t.grant.Call
	if t.told == 0 && t.unlock.Said == saidNil {
		from = t.unlock.Call
	}
	lasts := t.grant.Call + t.assured
	for _, e := range confirmed {
		if e.Call <= to {
			from = max(from, e.Call)
		}
		if e.Op == opExtend && e.Call <= to {
			lasts = max(lasts, e.Call+t.assured)
		}
	}
	if t.unlock != nil {
		lasts = min(lasts, t.unlock.Call)
	}
	from = max(from, lasts)
	return from, max(from, to), true
}
