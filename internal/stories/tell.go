package stories

import (
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
	var all []uint64
	for _, e := range t.rec.Events {
		if t.client(e) != nobody && e.Token > 0 {
			all = append(all, e.Token)
		}
	}
	if len(all) == 0 {
		return
	}
	first, last := strconv.FormatUint(slices.Min(all), 10), strconv.FormatUint(slices.Max(all), 10)
	if len(first) < 7 || first == last || len(first) != len(last) {
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
