package redlock

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
)

// waitExploration takes two waiters, and a hold that ends, through every order of events at three nodes. It knows no time, as
// exploration does. Without tokens the rounds of a waiter have no end. With them there are two. At most two requests of a kind are
// under way between a waiter and a node, and a waiter looks when nothing of its own is under way. A second waiter that began after
// a majority had the first in its queue comes second, unless a fault, or the time of a round, has cost the first its turn.
type waitExploration struct {
	name    string
	rules   waitRules
	tokens  bool
	last    [exNodes]uint64 // tokens that nodes have accepted before
	free    int             // so many nodes are free from the start, and the others are held
	dead    int             // so many are dead
	budget  waitBudget
	enough  int // states after which it fails
	ordered bool

	states []waitWorld
	seen   map[string]int
	next   [][]int // by state: those that progress leads to
	from   []step
}

type step struct {
	state int
	event string
}

// waitBudget is how often each fault may happen.
type waitBudget struct {
	delays   int // of an answer: else it is heard at once
	drops    int // of a message, a request or an answer
	lates    int // an ask is given up, and arrives at any time
	deaths   int // of a waiter
	cancels  int
	expiries int // of a claim whose waiter is about to answer it
	forgets  int
	ends     int // how often the time of a round may be over before a majority has granted
}

type waitWorld struct {
	nodes    [exNodes]waitNode
	waiters  [2]waiting
	links    [2][exNodes]waitLink
	held     [exNodes]bool // the first hold has yet to end there
	largest  uint64
	budget   waitBudget
	excused  [2]bool // a fault may have cost it its turn
	follows  bool    // the second began when a majority had the first in its queue
	violated string
}

// waitLink is what is under way between a waiter and a node.
type waitLink struct {
	asks     []waitAsk
	late     []waitAsk
	answers  []waitHeard
	requests []waitRequest // of other kinds
	raised   []waitHeard
	messages int
}

type waitHeard struct {
	round, goal uint64
	answer      waitAnswer
}

const firstHolder = 9

func (x *waitExploration) start() waitWorld {
	w := waitWorld{budget: x.budget}
	for i := range w.nodes {
		n := &w.nodes[i]
		n.rules = x.rules
		n.reg.known, n.reg.last = true, x.last[i]
		n.dead = i < x.dead
		if w.held[i] = i < exNodes-x.free && !n.dead; w.held[i] {
			n.reg.owner, n.reg.until = waiterOwner(firstHolder, 1), 1
		}
	}
	for a := range w.waiters {
		w.waiters[a] = waiting{id: uint64(a + 1), place: uint64(a + 1), proposal: 1, rules: x.rules}
	}
	return w
}

func (w *waitWorld) copy() *waitWorld {
	n := *w
	for i := range n.nodes {
		n.nodes[i].queue = slices.Clone(n.nodes[i].queue)
	}
	for a := range n.waiters {
		me := &n.waiters[a]
		me.ballot.votes = slices.Clone(me.ballot.votes)
		me.asking, me.again = slices.Clone(me.asking), slices.Clone(me.again)
		me.send = func(i int, r waitRequest) { n.send(a, i, r) }
		for i := range n.links[a] {
			l := &n.links[a][i]
			l.asks, l.late, l.answers = slices.Clone(l.asks), slices.Clone(l.late), slices.Clone(l.answers)
			l.requests, l.raised = slices.Clone(l.requests), slices.Clone(l.raised)
		}
	}
	return &n
}

func (w *waitWorld) send(a, i int, r waitRequest) {
	l := &w.links[a][i]
	if w.nodes[i].dead {
		if r.verb == askIt {
			w.waiters[a].asking[i] = false // refused at once: the node is absent
			if w.waiters[a].phase == waitAsks {
				w.waiters[a].ballot.says(i, absent)
			}
		}
		return
	}
	if r.verb == askIt {
		r.ask.ttl = 1
		l.asks = append(l.asks, r.ask)
		return
	}
	l.requests = append(l.requests, r)
}

func (w *waitWorld) wake(i int, waiter uint64) {
	if waiter == 1 || waiter == 2 {
		w.links[waiter-1][i].messages++
	}
}

// waitEvent is one step that is possible.
type waitEvent struct {
	name     string
	progress bool
	happen   func(w *waitWorld)
}

func (x *waitExploration) events(w *waitWorld) (all []waitEvent) {
	add := func(name string, progress bool, happen func(w *waitWorld)) {
		all = append(all, waitEvent{name, progress, happen})
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.dead {
			continue
		}
		if w.held[i] {
			add(fmt.Sprint("the first hold ends at node ", i), true, func(w *waitWorld) {
				w.held[i] = false
				w.wake(i, w.nodes[i].end(0, firstHolder, 1))
			})
		}
		if n.reg.left(0) && !w.held[i] && w.ended(n.reg.owner) && (!x.rules.noLooks || x.budget.deaths > 0) {
			add(fmt.Sprintf("%x expires at node %d", n.reg.owner, i), true, func(w *waitWorld) { w.nodes[i].reg.owner = 0 })
		}
		if c := n.claim.waiter; c != 0 {
			a := int(c - 1)
			l := &w.links[a][i]
			counts := w.waiters[a].phase == waitDead || w.waiters[a].phase == waitGone || l.messages == 0 && len(l.asks) == 0
			if counts || w.budget.expiries > 0 {
				add(fmt.Sprintf("the claim for %d expires at node %d", c, i), counts, func(w *waitWorld) {
					if !counts {
						w.budget.expiries--
					}
					w.excused[a] = true
					w.nodes[i].claim = place{}
				})
			}
		}
		if w.budget.forgets > 0 && !(x.tokens && n.reg.left(0)) { // that two hold then is shown without tokens
			add(fmt.Sprint("all is forgotten by node ", i), false, func(w *waitWorld) {
				w.budget.forgets--
				w.excused = [2]bool{true, true}
				w.held[i] = false
				w.nodes[i].reg.forget()
				w.nodes[i].claim, w.nodes[i].queue = place{}, nil
			})
		}
	}
	for a := range w.waiters {
		x.waiterEvents(w, a, add)
		for i := range w.nodes {
			x.linkEvents(w, a, i, add)
		}
	}
	return all
}

// ended reports whether the round that is the owner has ended, or its waiter.
func (w *waitWorld) ended(owner uint64) bool {
	id, round := owner>>16, owner&0xffff
	if id == firstHolder {
		return true
	}
	me := &w.waiters[id-1]
	return me.phase == waitGone || me.phase == waitDead || me.round != round
}

func (x *waitExploration) waiterEvents(w *waitWorld, a int, add func(string, bool, func(*waitWorld))) {
	me := &w.waiters[a]
	id := a + 1
	switch me.phase {
	case waitIdle:
		add(fmt.Sprint(id, " begins"), true, func(w *waitWorld) {
			if a == 1 {
				in := 0
				for i := range w.nodes {
					if slices.ContainsFunc(w.nodes[i].queue, func(p place) bool { return p.waiter == 1 }) || w.nodes[i].waiter() == 1 && w.nodes[i].reg.left(0) {
						in++
					}
				}
				w.follows = in >= majority(exNodes) && w.waiters[0].phase == waitAsks
			}
			w.waiters[a].begin(exNodes)
		})
	case waitAsks:
		if x.over(w, a) && !x.rules.noLooks {
			add(fmt.Sprint(id, " looks"), true, func(w *waitWorld) { w.waiters[a].look() })
		}
		if me.minority() && !x.rules.noGive && (w.budget.ends != 0 || x.over(w, a)) {
			add(fmt.Sprint("the round of ", id, " is over"), x.over(w, a), func(w *waitWorld) {
				if w.budget.ends > 0 && !x.over(w, a) {
					w.budget.ends--
				}
				w.excused[a] = true
				w.waiters[a].giveBack()
			})
		}
		if w.budget.cancels > 0 {
			add(fmt.Sprint(id, " gives up"), false, func(w *waitWorld) {
				w.budget.cancels--
				w.waiters[a].leave()
			})
		}
	case waitHolds:
		add(fmt.Sprint(id, " releases"), true, func(w *waitWorld) { w.waiters[a].leave() })
	}
	if (me.phase == waitAsks || me.phase == waitHolds) && w.budget.deaths > 0 {
		add(fmt.Sprint(id, " dies"), false, func(w *waitWorld) {
			w.budget.deaths--
			w.waiters[a].phase = waitDead
			w.links[a] = [exNodes]waitLink{} // what is under way is lost; lates are a budget of their own
		})
	}
}

// over reports whether the time of a round passes although all that is under way arrives soon.
func (x *waitExploration) over(w *waitWorld, a int) bool {
	for i := range w.nodes {
		l := &w.links[a][i]
		if len(l.asks) > 0 || len(l.answers) > 0 || l.messages > 0 || len(l.requests) > 0 || len(l.raised) > 0 {
			return false
		}
	}
	return true
}

func (x *waitExploration) linkEvents(w *waitWorld, a, i int, add func(string, bool, func(*waitWorld))) {
	id, l := a+1, &w.links[a][i]
	between := fmt.Sprintf(" of %d and node %d", id, i)
	heard := func(w *waitWorld, wins bool) {
		if wins {
			x.wins(w, a)
		}
	}
	for k := range l.asks {
		name := fmt.Sprintf("ask %d%s, round %d", k, between, l.asks[k].round)
		arrives := func(w *waitWorld) (waitAsk, waitAnswer) {
			l := &w.links[a][i]
			ask := l.asks[k]
			l.asks = slices.Delete(l.asks, k, k+1)
			answer, wakes := w.nodes[i].ask(0, ask)
			w.wake(i, wakes)
			return ask, answer
		}
		add(name, true, func(w *waitWorld) {
			ask, answer := arrives(w)
			heard(w, w.waiters[a].answered(i, ask.round, answer))
		})
		if w.budget.delays > 0 {
			add(name+" is answered, which takes a while", true, func(w *waitWorld) {
				w.budget.delays--
				ask, answer := arrives(w)
				l := &w.links[a][i]
				l.answers = append(l.answers, waitHeard{round: ask.round, answer: answer})
			})
		}
		unanswered := func(w *waitWorld, round uint64) {
			w.excused[a] = true
			if me := &w.waiters[a]; me.round == round && (me.phase == waitAsks || me.phase == waitHolds) {
				me.asking[i] = false
				me.ballot.says(i, absent)
			}
		}
		if w.budget.drops > 0 {
			add(name+" is lost", false, func(w *waitWorld) {
				w.budget.drops--
				round := w.links[a][i].asks[k].round
				w.links[a][i].asks = slices.Delete(w.links[a][i].asks, k, k+1)
				unanswered(w, round)
			})
			add(name+" is answered, which is lost", false, func(w *waitWorld) {
				w.budget.drops--
				ask, answer := arrives(w)
				unanswered(w, ask.round)
				if answer.granted { // the waiter knows only that it may have it, and gives it back with the round
					w.waiters[a].ballot.says(i, gone)
				}
			})
		}
		if w.budget.lates > 0 {
			add(name+" is given up", false, func(w *waitWorld) {
				w.budget.lates--
				l := &w.links[a][i]
				ask := l.asks[k]
				l.asks = slices.Delete(l.asks, k, k+1)
				l.late = append(l.late, ask)
				unanswered(w, ask.round)
			})
		}
	}
	if len(l.late) > 0 {
		add("a late ask"+between, true, func(w *waitWorld) {
			l := &w.links[a][i]
			ask := l.late[0]
			l.late = l.late[1:]
			_, wakes := w.nodes[i].ask(0, ask)
			w.wake(i, wakes)
		})
	}
	for k := range l.answers {
		add(fmt.Sprintf("answer %d%s: %v", k, between, l.answers[k]), true, func(w *waitWorld) {
			l := &w.links[a][i]
			h := l.answers[k]
			l.answers = slices.Delete(l.answers, k, k+1)
			heard(w, w.waiters[a].answered(i, h.round, h.answer))
		})
	}
	if l.messages > 0 {
		add("message"+between, true, func(w *waitWorld) {
			w.links[a][i].messages--
			w.waiters[a].woken(i)
		})
		if w.budget.drops > 0 {
			add("message is lost"+between, false, func(w *waitWorld) {
				w.budget.drops--
				w.excused[a] = true
				w.links[a][i].messages--
			})
		}
	}
	for k := range l.requests {
		r := l.requests[k]
		name := fmt.Sprintf("request %d%s: %v", k, between, r)
		add(name, true, func(w *waitWorld) {
			l := &w.links[a][i]
			l.requests = slices.Delete(l.requests, k, k+1)
			switch n := &w.nodes[i]; r.verb {
			case giveIt:
				w.wake(i, n.giveBack(0, r.ask.waiter, r.ask.round, r.ask.place))
			case endIt:
				w.wake(i, n.end(0, r.ask.waiter, r.ask.round))
			case raiseToo:
				ok := n.reg.raise(0, waiterOwner(r.ask.waiter, r.ask.round), r.goal)
				answer := waitAnswer{granted: ok}
				l.raised = append(l.raised, waitHeard{round: r.round, goal: r.goal, answer: answer})
			}
		})
		if w.budget.drops > 0 {
			add(name+" is lost", false, func(w *waitWorld) {
				w.budget.drops--
				w.excused = [2]bool{true, true}
				w.links[a][i].requests = slices.Delete(w.links[a][i].requests, k, k+1)
			})
		}
	}
	for k := range l.raised {
		add("raised"+between, true, func(w *waitWorld) {
			l := &w.links[a][i]
			h := l.raised[k]
			l.raised = slices.Delete(l.raised, k, k+1)
			heard(w, w.waiters[a].raised(i, h.round, h.goal, h.answer.granted))
		})
	}
}

// wins checks a grant.
func (x *waitExploration) wins(w *waitWorld, a int) {
	held := 0
	for i := range w.held {
		if w.held[i] {
			held++
		}
	}
	goal := w.waiters[a].ballot.goal
	switch {
	case w.waiters[1-a].phase == waitHolds:
		w.violated = "two hold"
	case held >= majority(exNodes):
		w.violated = "the first hold has not ended"
	case x.tokens && goal <= w.largest:
		w.violated = "a token is not larger than those before"
	case x.ordered && a == 1 && w.follows && w.waiters[0].phase == waitAsks && !w.excused[0]:
		w.violated = "the second is granted the lock before the first"
	}
	w.largest = max(w.largest, goal)
}

// settle forgets what makes no difference.
func (x *waitExploration) settle(w *waitWorld) {
	for a := range w.waiters {
		me := &w.waiters[a]
		for i := range w.nodes {
			l := &w.links[a][i]
			l.messages = min(l.messages, 1)
			if me.phase == waitDead {
				l.messages, l.answers, l.raised = 0, nil, nil
			}
		}
	}
	if x.tokens {
		return
	}
	w.largest = 0
	for i := range w.nodes {
		r := &w.nodes[i].reg
		r.last, r.before, r.lapsed = 0, 0, 0
	}
	for a := range w.waiters {
		w.renumber(a)
	}
}

// renumber numbers the rounds of a waiter that something is left of from 1 on.
func (w *waitWorld) renumber(a int) {
	me := &w.waiters[a]
	if me.phase == waitIdle {
		return
	}
	all := []*uint64{&me.round}
	owners := []int{}
	for i := range w.nodes {
		if n := &w.nodes[i]; n.waiter() == me.id {
			owners = append(owners, i)
		}
		l := &w.links[a][i]
		for k := range l.asks {
			all = append(all, &l.asks[k].round)
		}
		for k := range l.late {
			all = append(all, &l.late[k].round)
		}
		for k := range l.answers {
			all = append(all, &l.answers[k].round)
		}
		for k := range l.requests {
			all = append(all, &l.requests[k].round, &l.requests[k].ask.round)
		}
	}
	var rounds []uint64
	for _, p := range all {
		rounds = append(rounds, *p)
	}
	for _, i := range owners {
		rounds = append(rounds, w.nodes[i].reg.owner&0xffff)
	}
	slices.Sort(rounds)
	rounds = slices.Compact(rounds)
	number := func(r uint64) uint64 { k, _ := slices.BinarySearch(rounds, r); return uint64(k + 1) }
	for _, p := range all {
		*p = number(*p)
	}
	for _, i := range owners {
		r := &w.nodes[i].reg
		r.owner = waiterOwner(me.id, number(r.owner&0xffff))
	}
}

// key is the same for states that differ in the names of the nodes alone.
func (x *waitExploration) key(w *waitWorld) string {
	var columns [exNodes][]byte
	bit := func(b bool) byte { return flags(b) }
	for i := range columns {
		n := &w.nodes[i]
		c := []byte{byte(n.reg.owner >> 16), byte(n.reg.owner), byte(n.reg.last), byte(n.claim.waiter), byte(n.place), bit(n.dead), bit(w.held[i]), byte(len(n.queue))}
		for _, p := range n.queue {
			c = append(c, byte(p.waiter))
		}
		for a := range w.waiters {
			me, l := &w.waiters[a], &w.links[a][i]
			if me.phase != waitIdle {
				c = append(c, byte(me.ballot.votes[i].state), byte(me.ballot.votes[i].token), flags(me.asking[i], me.again[i]))
			}
			c = append(c, 0xff, byte(l.messages))
			c = appendParts(c, l.asks, func(r waitAsk) []byte { return []byte{byte(r.round), byte(r.token), bit(r.joins)} })
			c = appendParts(c, l.late, func(r waitAsk) []byte { return []byte{byte(r.round), byte(r.token), bit(r.joins)} })
			heard := func(h waitHeard) []byte {
				return []byte{byte(h.round), byte(h.goal), byte(h.answer.token), flags(h.answer.granted, h.answer.earlier)}
			}
			c = appendParts(appendParts(c, l.answers, heard), l.raised, heard)
			c = appendParts(c, l.requests, func(r waitRequest) []byte {
				goal := byte(0)
				if r.verb == raiseToo {
					goal = byte(r.goal)
				}
				return []byte{byte(r.verb), byte(r.ask.round), byte(r.round), goal}
			})
		}
		columns[i] = c
	}
	slices.SortFunc(columns[:], bytes.Compare)
	b := w.budget
	all := []byte{
		byte(w.largest), flags(w.excused[0], w.excused[1], w.follows),
		byte(b.delays), byte(b.drops), byte(b.lates), byte(b.deaths), byte(b.cancels), byte(b.expiries), byte(b.forgets), byte(b.ends),
	}
	for a := range w.waiters {
		me := &w.waiters[a]
		all = append(all, byte(me.phase), byte(me.round), byte(me.ballot.goal))
	}
	for _, c := range columns {
		all = append(binary.LittleEndian.AppendUint16(all, uint16(len(c))), c...)
	}
	return string(all)
}

// appendParts appends parts in an order of their own: what is under way may arrive in any.
func appendParts[T any](to []byte, all []T, part func(T) []byte) []byte {
	var parts [][]byte
	for _, p := range all {
		parts = append(parts, part(p))
	}
	slices.SortFunc(parts, bytes.Compare)
	to = append(to, byte(len(parts)))
	for _, p := range parts {
		to = append(to, p...)
	}
	return to
}

// explore goes through all states, and returns the first thing that must not be, with the way there.
func (x *waitExploration) explore() error {
	x.seen = map[string]int{}
	start := x.start()
	x.add(&start, step{-1, ""})
	for at := 0; at < len(x.states); at++ {
		if x.enough > 0 && at > x.enough {
			return fmt.Errorf("more than %d states", x.enough)
		}
		now := x.states[at]
		x.states[at] = waitWorld{waiters: [2]waiting{{phase: now.waiters[0].phase}, {phase: now.waiters[1].phase}}}
		for _, e := range x.events(&now) {
			w := now.copy()
			e.happen(w)
			if w.violated != "" {
				return fmt.Errorf("%s, after:\n%s", w.violated, x.way(step{at, e.name}))
			}
			if x.tokens && (w.waiters[0].round > 2 || w.waiters[1].round > 2) {
				continue
			}
			if w.crowded() {
				continue
			}
			x.settle(w)
			next := x.add(w, step{at, e.name})
			if e.progress && next != at {
				x.next[at] = append(x.next[at], next)
			}
		}
	}
	if x.tokens {
		return nil
	}
	return x.stuck()
}

// crowded reports whether more is under way between a waiter and a node than is explored.
func (w *waitWorld) crowded() bool {
	for a := range w.links {
		for i := range w.links[a] {
			if l := &w.links[a][i]; len(l.asks) > 2 || len(l.requests) > 2 {
				return true
			}
		}
	}
	return false
}

func (x *waitExploration) add(w *waitWorld, from step) int {
	key := x.key(w)
	n, known := x.seen[key]
	if !known {
		n = len(x.states)
		x.seen[key] = n
		x.states, x.next, x.from = append(x.states, *w), append(x.next, nil), append(x.from, from)
	}
	return n
}

func (x *waitExploration) way(to step) string {
	var names []string
	for ; to.state >= 0; to = x.from[to.state] {
		names = append(names, to.event)
	}
	slices.Reverse(names)
	return strings.Join(names, "\n")
}

// stuck returns an error if there is a state from which a waiter cannot come to hold by what happens of itself.
func (x *waitExploration) stuck() error {
	back := make([][]int, len(x.states))
	for state, all := range x.next {
		for _, n := range all {
			back[n] = append(back[n], state)
		}
	}
	for a := range 2 {
		can := make([]bool, len(x.states))
		var pending []int
		for state := range x.states {
			if can[state] = x.states[state].waiters[a].phase == waitHolds; can[state] {
				pending = append(pending, state)
			}
		}
		for len(pending) > 0 {
			state := pending[len(pending)-1]
			pending = pending[:len(pending)-1]
			for _, b := range back[state] {
				if !can[b] {
					can[b] = true
					pending = append(pending, b)
				}
			}
		}
		for state := range x.states {
			if x.states[state].waiters[a].phase == waitAsks && !can[state] {
				return fmt.Errorf("%d waits for ever, after:\n%s", a+1, x.way(x.from[state]))
			}
		}
	}
	return nil
}

func TestWaiting_inEveryOrderOfEvents(t *testing.T) {
	cases := []waitExploration{
		{name: "a node is dead, held, woken alone", dead: 1, ordered: true, rules: waitRules{noLooks: true}},
	}
	if testwait.Thorough() {
		cases = append(cases,
			waitExploration{name: "a node is dead", dead: 1, free: 3, ordered: true},
			waitExploration{name: "a node is dead, an answer is slow", dead: 1, free: 3, ordered: true, budget: waitBudget{delays: 1}},
			waitExploration{name: "a node is dead, held, woken alone, an answer is slow", dead: 1, ordered: true, rules: waitRules{noLooks: true}, budget: waitBudget{delays: 1}},
			waitExploration{name: "a node is dead, a waiter dies", dead: 1, free: 3, ordered: true, budget: waitBudget{deaths: 1}},
			waitExploration{name: "tokens, a round ends early", dead: 1, free: 3, tokens: true, last: uneven, rules: waitRules{noLooks: true}, budget: waitBudget{ends: 1}},
			waitExploration{name: "tokens, a request is late", dead: 1, free: 3, tokens: true, last: uneven, rules: waitRules{noLooks: true}, budget: waitBudget{lates: 1}},
			waitExploration{name: "tokens, a node is dead", dead: 1, free: 3, tokens: true, last: uneven},
		)
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			x.enough = 400_000
			require.NoError(t, x.explore())
			t.Logf("%d states", len(x.states))
		})
	}
}

func TestWaiting_breaksWhenAPartIsLeftOut(t *testing.T) {
	for _, x := range []struct {
		waitExploration
		want string
	}{
		{waitExploration{name: "two nodes forget", rules: waitRules{noLooks: true}, dead: 1, free: 3, budget: waitBudget{forgets: 2}}, "two hold"},
		{waitExploration{name: "two nodes forget tokens", rules: waitRules{noLooks: true}, tokens: true, dead: 1, free: 3, last: uneven, budget: waitBudget{forgets: 2}}, "not larger"},
		{waitExploration{name: "a node wakes the last", rules: waitRules{noLooks: true, lastFirst: true}, dead: 1, ordered: true}, "before the first"},
		{waitExploration{name: "nobody gives back", rules: waitRules{noYield: true, noGive: true}, dead: 1, free: 3}, "waits for ever"},
		{waitExploration{name: "nobody looks, and something is lost", rules: waitRules{noLooks: true}, dead: 1, free: 1, budget: waitBudget{drops: 1}}, "waits for ever"},
		{waitExploration{name: "a give-back tells nobody", rules: waitRules{noLooks: true, tellsNone: true}, dead: 1, free: 3}, "waits for ever"},
		{waitExploration{name: "the node that woke alone is asked", rules: waitRules{noLooks: true, noSweep: true}, free: 1, dead: 1}, "waits for ever"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			x.enough = 400_000
			err := x.explore()
			t.Logf("%d states: %v", len(x.states), err)
			require.ErrorContains(t, err, x.want)
		})
	}
}
