package stories

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker/internal/history"
)

// View is what is shown of one run.
type View struct {
	Run
	Recording

	Lanes []string // their names
	Steps []Step
}

// Step is a moment in which something changed, and what there is to see after it.
type Step struct {
	At     string // since the first step
	Text   string
	Lane   int    // where it happened
	Mark   string // a sign at that place
	States []State
}

// State is that of one lane.
type State struct {
	Kind string // see the constants
	Of   string // whom it belongs to: a, b, or nobody
	Text string
}

// The kinds of states: of a process, of the servers, and of a resource.
const (
	idle   = "idle"
	waits  = "waits"
	holds  = "holds"
	paused = "paused"
	stale  = "stale" // it believes that it holds what another has been granted
	lost   = "lost"  // and knows it

	free  = "free"
	given = "given"
	down  = "down"

	empty   = "empty"
	written = "written"
	spoilt  = "spoilt" // an update is lost
)

// The signs.
const (
	markFault    = "⚡"
	markAccepted = "✓"
	markRefused  = "✕"
	markSpoilt   = "!" // two hold, or an update is lost
)

// nobody is the number of no client.
const nobody = -1

// View returns what is to be shown of r, as it was recorded.
func (r Run) View(rec Recording) (View, error) {
	t := newTeller(r, rec)
	moments := t.moments()
	if len(t.clients) == 0 || len(moments) == 0 {
		return View{}, fmt.Errorf("%s: there is no lock for which A and B contend", r.File)
	}
	for _, m := range moments {
		t.now = m.at
		m.tell()
	}
	return View{Run: r, Recording: rec, Lanes: t.names(), Steps: t.steps}, nil
}

// teller follows one lock of a recording.
type teller struct {
	rec    Recording
	source Source
	lanes  []*lane // the processes, the servers, the resources

	clients []int // A and B, as the history has them
	tokens  int   // how many digits of a token are left out

	begin, now int64
	owner      int    // whom the servers have granted the lock to last, or nobody
	fault      string // the last one of the servers
	processes  [2]process
	resources  map[bool]*resource // by whether it checks tokens
	steps      []Step
	failed     int // whose Lock has failed last
}

// lane is a line of the page.
type lane struct {
	name  string
	state State
}

// process is what is known of A or B.
type process struct {
	grant  history.Event
	token  uint64
	looked bool // it has been seen to believe in a hold that is another's
	asking bool // it was said that it waits
	stop   int64
}

// resource is what is known of one.
type resource struct {
	lane    int
	by      int // who has written last
	writes  int
	largest uint64
	read    [2]int // how many writes there were when A and B read
}

// moment is one to tell of.
type moment struct {
	at   int64
	tell func()
}

func newTeller(r Run, rec Recording) *teller {
	t := &teller{rec: rec, source: Sources()[r.File], owner: nobody, failed: nobody, resources: map[bool]*resource{}}
	t.choose(r.Fenced)
	for _, c := range t.clients {
		t.lanes = append(t.lanes, &lane{"Process " + rec.Clients[c].Who, State{Kind: idle, Text: "does nothing"}})
	}
	t.lanes = append(t.lanes, &lane{t.source.Lane, State{Kind: free, Text: "the lock is free"}})
	for _, fenced := range []bool{false, true} {
		if slices.ContainsFunc(rec.Events, func(e history.Event) bool { return t.client(e) != nobody && t.uses(e) && e.Fenced == fenced }) {
			t.resources[fenced] = &resource{lane: len(t.lanes), by: nobody}
			name := "Resource, checks nothing"
			if fenced {
				name = "Resource, checks tokens"
			}
			t.lanes = append(t.lanes, &lane{name, State{Kind: empty, Text: "not written yet"}})
		}
	}
	t.shorten()
	return t
}

// choose finds the lock that is told of: one for which A and B contend, and the first whose
// resource is as it is asked for, if that is what the scenario is about. A late write with the
// token 0 tells less than one with a token.
func (t *teller) choose(fenced bool) {
	byName := map[string][]int{}
	var names []string
	for i, c := range t.rec.Clients {
		if c.Who == "A" || c.Who == "B" {
			byName[c.Name] = append(byName[c.Name], i)
			if len(byName[c.Name]) == 2 {
				names = append(names, c.Name)
			}
		}
	}
	of := func(name string, is func(history.Event) bool) bool {
		return slices.ContainsFunc(t.rec.Events, func(e history.Event) bool { return slices.Contains(byName[name], e.Client) && is(e) })
	}
	for _, name := range names {
		other := len(names) > 1 && !of(name, func(e history.Event) bool { return t.uses(e) && e.Fenced == fenced })
		without := of(name, func(e history.Event) bool { return t.uses(e) && e.Token == 0 })
		if other || without {
			continue
		}
		t.clients = byName[name]
		slices.SortFunc(t.clients, func(a, b int) int { return strings.Compare(t.rec.Clients[a].Who, t.rec.Clients[b].Who) })
		return
	}
}

func (*teller) uses(e history.Event) bool { return e.Op == history.OpRead || e.Op == history.OpWrite }

// client is 0 or 1, A or B, or nobody who is told of.
func (t *teller) client(e history.Event) int { return slices.Index(t.clients, e.Client) }

// shorten finds the digits that all tokens begin with, which say nothing.
func (t *teller) shorten() {
	var all []string
	for _, e := range t.rec.Events {
		if t.client(e) != nobody && e.Token > 0 {
			all = append(all, strconv.FormatUint(e.Token, 10))
		}
	}
	if len(all) == 0 || len(all[0]) < 7 {
		return
	}
	slices.Sort(all)
	all = slices.Compact(all)
	first, last := all[0], all[len(all)-1]
	if len(all) == 1 || len(first) != len(last) {
		return
	}
	for t.tokens < len(first)-4 && first[t.tokens] == last[t.tokens] {
		t.tokens++
	}
}

func (t *teller) token(token uint64) string {
	text := strconv.FormatUint(token, 10)
	if t.tokens == 0 || token == 0 {
		return text
	}
	return "…\u2060" + text[t.tokens:] // no line ends in between
}

func (t *teller) names() (all []string) {
	for _, l := range t.lanes {
		all = append(all, l.name)
	}
	return all
}

// servers is the lane of the servers.
const servers = 2

func (t *teller) who(client int) string { return t.rec.Clients[t.clients[client]].Who }

func (t *teller) ttl(client int) time.Duration { return t.rec.Clients[t.clients[client]].TTL }

// step tells what has happened in a lane, when the states have changed.
func (t *teller) step(in int, mark, format string, args ...any) {
	if len(t.steps) == 0 {
		t.begin = t.now
	}
	s := Step{At: lasts(t.now - t.begin), Text: fmt.Sprintf(format, args...), Lane: in, Mark: mark}
	for _, l := range t.lanes {
		s.States = append(s.States, l.state)
	}
	t.steps = append(t.steps, s)
	t.failed = nobody
}

// set changes the state of a lane, which is of a client, or of nobody.
func (t *teller) set(in int, kind string, of int, format string, args ...any) {
	s := State{Kind: kind, Text: fmt.Sprintf(format, args...)}
	if of != nobody {
		s.Of = strings.ToLower(t.who(of))
	}
	t.lanes[in].state = s
}

// lasts is a time as a person reads it.
func lasts(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return strings.Replace(fmt.Sprintf("%.1f s", d.Seconds()), ".0 ", " ", 1)
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	}
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
		t.befalls(f, add)
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
