package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/workers"
)

// The exploration of a hold takes the lease of the Driver, as it is, through every order in which the requests of an
// attempt and of the Extends after it can arrive at three nodes, and the answers at the client. Requests, answers and
// nodes may be lost or forget, as often as a case says, and another client takes the lock wherever a majority lets it.
// It knows no time: what sane clocks guarantee is in it as an order of events. A node lets a lock expire only after a
// request that was sent later has succeeded elsewhere.
//
// What has to hold:
//   - An Extend that began after another was granted the lock does not succeed. A node that has forgotten, and does not
//     answer that Extend, is the exception that docs/protocols.md states.
//   - While no node forgets nobody else is granted the lock.
//   - Once a majority has the lock's token, and while no node forgets, the next hold gets a larger one.
type holdExploration struct {
	name    string
	last    [exNodes]uint64 // tokens accepted before
	extends int             // at most, one after the other
	others  int             // how often another client may be granted the lock
	budget                  // of what may go wrong
	flaw    flaw

	driver     *Driver
	seen       map[uint64]struct{}
	violations map[string]int
}

// budget is how often something may happen.
type budget struct {
	forgets int // a node loses its data
	expires int
	drops   int // a request is lost, and its sender told
	losses  int // an answer is lost, and its sender told
	misses  int // a call is given up, whose answer may come later
}

// flaw is a part of the rule left out.
type flaw struct {
	lateGrantsCount bool // as if they had been granted before the majority's
	joinersCount    bool // from the Extend in which they join
	lacksIgnored    bool // a node that joins is as good as any
	notRaised       bool // a node that joins keeps a smaller token
}

// Tokens: what another client proposes has to be raised, as by a clock that is behind.
const (
	ourToken   = 10
	otherToken = 5
	otherOwner = 1 << 32
)

// What must not happen.
const (
	unnoticed = "an Extend succeeded after another had been granted the lock"
	besides   = "another was granted the lock, though no node had forgotten"
	smaller   = "the next hold gets a token that is no larger"
)

// happening is one history, up to now.
type happening struct {
	*holdExploration
	budget
	lease   *lease
	decided *waiter // nil: it is
	err     error
	nodes   [exNodes]holdNode
	calls   []*transit // under way

	ext  *extension   // under way
	exts []*extension // all

	epoch, success int // of the latest request, and of what last succeeded
	owners         uint64
	granted        int // how often the other was
	before         int // of which this many before the Extend under way began
	excused        int // of which this many need not be noticed
	forgot         int // how often a node has
	forgotBefore   int // before the Extend under way began
	otherHolds     bool
	solid          bool // a majority has our token, and has not forgotten
	bad            string
}

// transit is a call under way.
type transit struct {
	*call
	node    int
	epoch   int
	arrived bool
	missed  bool
	err     error
}

// what can happen next.
type what uint8

const (
	arrive what = iota // a request
	drop
	reply
	loseReply
	giveUp
	extendNow
	forgetAll
	expire
	otherTakes
	otherGoes
)

type event struct {
	what what
	at   uint8 // a call, a node, or a set of nodes
}

var majorities = [][]int{{0, 1}, {0, 2}, {1, 2}, {0, 1, 2}}

// events lists them.
func (h *happening) events() (all []event) {
	add := func(possible bool, w what, at int) {
		if possible {
			all = append(all, event{w, uint8(at)})
		}
	}
	for k, c := range h.calls {
		add(!c.arrived, arrive, k)
		add(!c.arrived && h.drops > 0, drop, k)
		add(c.arrived, reply, k)
		add(c.arrived && h.losses > 0, loseReply, k)
		add(!c.missed && h.misses > 0, giveUp, k)
	}
	holds := h.lease.token != 0 && !h.lease.over
	add(holds && h.ext == nil && len(h.exts) < h.extends, extendNow, 0)
	for i := range h.nodes {
		n := &h.nodes[i]
		ours := n.owner != 0 && n.owner != otherOwner
		add(holds && h.forgets > 0 && n.known, forgetAll, i)
		add(holds && ours && h.expires > 0 && n.epoch < h.success, expire, i)
	}
	for s, nodes := range majorities {
		free := true
		for _, i := range nodes {
			free = free && !h.nodes[i].left(0)
		}
		add(holds && free && h.granted < h.others, otherTakes, s)
	}
	add(h.otherHolds, otherGoes, 0)
	return all
}

// happen has one of them happen.
func (h *happening) happen(e event) {
	switch e.what {
	case arrive, drop:
		h.arrive(h.calls[e.at], e.what == drop)
	case reply, loseReply:
		h.answer(int(e.at), e.what == loseReply)
	case giveUp:
		c := h.calls[e.at]
		h.misses--
		c.missed = true
		c.heard(noAnswer(time.Second), false)
	case extendNow:
		h.extend()
	case forgetAll:
		h.forgets--
		h.forgot++
		h.solid = false
		h.nodes[e.at].forget()
	case expire:
		h.expires--
		h.nodes[e.at].until = 0
	case otherTakes:
		h.otherTakes(majorities[e.at])
	case otherGoes:
		h.otherHolds = false
		for i := range h.nodes {
			h.nodes[i].release(0, otherOwner, 0, false)
		}
	}
	h.look()
	if h.bad == "" {
		h.next()
	}
}

func (h *happening) arrive(c *transit, drop bool) {
	n := &h.nodes[c.node]
	n.dropped, n.sent = drop, c.epoch
	if drop {
		h.drops--
	}
	c.err = c.send(c.round)
	n.dropped = false
	c.arrived = true
	if c.err == nil {
		n.epoch = c.epoch
	}
}

func (h *happening) answer(k int, lose bool) {
	c := h.calls[k]
	h.calls = slices.Delete(h.calls, k, k+1)
	if lose {
		h.losses--
		c.err = errRefused
	}
	c.heard(c.err, true)
	c.round.ended()
}

// begin begins the attempt.
func (x *holdExploration) begin() *happening {
	h := &happening{holdExploration: x, budget: x.budget}
	for i := range h.nodes {
		h.nodes[i] = holdNode{happening: h, i: i, register: register{known: x.last[i] > 0, last: x.last[i]}}
		x.driver.nodes[i].Proposer = &h.nodes[i]
	}
	x.driver.do = func(c workers.Call) { h.send(c.(*call)) }
	h.lease, h.decided = x.driver.attempt(context.Background(), driver.Request{Name: "x", TTL: time.Hour}, nil)
	return h
}

// send is a call that goes out.
func (h *happening) send(c *call) {
	h.calls = append(h.calls, &transit{call: c, node: slices.Index(h.driver.nodes, c.node), epoch: h.epoch})
}

func (h *happening) extend() {
	h.epoch++
	h.before, h.forgotBefore = h.granted, h.forgot
	e := newExtension(h.lease, clock.Now(), time.Hour)
	h.ext, h.exts = e, append(h.exts, e)
	calls := e.begin(context.Background(), nil)
	for i := range h.nodes {
		e.parts[i].lacks = e.parts[i].lacks && !h.flaw.lacksIgnored
		calls = h.driver.extendAt(calls, i, []*extension{e})
	}
	h.driver.send(context.Background(), time.Hour, calls)
}

// otherTakes has another client be granted the lock by a majority.
func (h *happening) otherTakes(nodes []int) {
	var token uint64
	for _, i := range nodes {
		_, accepted := h.nodes[i].take(0, otherOwner, 1, otherToken)
		token = max(token, accepted)
	}
	for _, i := range nodes {
		h.nodes[i].raise(0, otherOwner, token)
	}
	h.granted++
	h.otherHolds = true
	if h.forgot == 0 {
		h.bad = besides
	}
}

// next looks at what another would be granted that any majority lets in, were the hold over now.
func (h *happening) next() {
	for _, nodes := range majorities {
		var token uint64
		for _, i := range nodes {
			n := h.nodes[i].register
			n.until = 0
			_, accepted := n.take(0, otherOwner, 1, otherToken)
			token = max(token, accepted)
		}
		if h.solid && token <= h.lease.token {
			h.bad = smaller
		}
	}
}

func met(w *waiter) bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// look sees what the client has come to know.
func (h *happening) look() {
	if h.decided != nil && met(h.decided) {
		h.err, h.decided = h.decided.err, nil
		h.solid = h.err == nil && h.forgot == 0
		for i := range h.lease.seats {
			s := &h.lease.seats[i]
			s.joins = s.joins && !h.flaw.lateGrantsCount
		}
	}
	if h.ext == nil || !met(&h.ext.waiter) {
		return
	}
	e := h.ext
	h.ext = nil
	if e.err != nil {
		return
	}
	h.success = h.epoch
	h.solid = h.solid || h.forgot == h.forgotBefore
	for i, p := range e.parts {
		s := &h.lease.seats[i]
		s.joins = s.joins && !(h.flaw.joinersCount && p.vote == nil)
	}
	switch {
	case h.before <= h.excused:
	case h.unanswered(e):
		h.excused = h.before
	default:
		h.bad = unnoticed
	}
}

// unanswered reports whether a node has not answered an Extend.
func (h *happening) unanswered(e *extension) bool {
	for _, p := range e.parts {
		if v := p.vote; v != nil && !errors.Is(v, locker.ErrLost) && v != errAbsent && v != errWaiting && v != errJoining { //nolint:errorlint // never wrapped
			return true
		}
	}
	return false
}

// drop ends what a history has begun.
func (h *happening) drop() {
	for _, c := range h.calls {
		c.round.ended()
	}
}
