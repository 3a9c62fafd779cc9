package redlock

import "slices"

// This is a design of a queue for Redlock, as a model. The Driver does not have it: its waiters poll. Waiters stand in a queue on
// every node, and the nodes wake them. waitNode is what a node would do, and waiting what a waiter would do, with the Driver's ballot.
// waiting_explore_test.go takes both through the orders of events.
//
// A node does what a single server does, with these differences:
//
//   - A waiter has one place, the same on every node. Each round of its asking is an owner of its own: one owner for several
//     attempts breaks the rule of tokens, see relaxations. The queue and the claims are the waiter's, the lock is the round's. So a
//     give-back that arrives late does not end a later grant.
//   - A request of a later round takes over what an earlier round has. One of an earlier round gets nothing from a later one.
//   - A give-back puts the waiter back in its place, and hands over only to a smaller place. Otherwise the lock is free there, and
//     nobody is told: the waiter would be claimed for again at once.
//   - A denial says whether the lock is with a smaller place, or with a hold that did not wait.
//   - A hold that joins the node comes before the queue, and does not enter it.
//
// A waiter asks all nodes. It keeps what a minority grants, unless a denial names a smaller place: then it gives back at once, and a
// new round begins with its next request. It also gives back when the time of the round is over, which must leave half of the TTL
// (the exploration has no time, and takes any moment for it). A message makes it ask all nodes that have not granted, also those
// at which it gave back: to ask the node that woke it is not enough. A look, as on a single server, makes up for lost messages.
//
// What is open: how many requests the give-backs of a hand-over cost, in which the releases reach the nodes at different times (a
// waiter need not yield to a place that a majority has named as the owner's); how places are made (of clients' clocks, or of the
// nodes' answers); more than two waiters.

// waiterOwner is the owner of a round of a waiter, which is at least 1.
func waiterOwner(waiter, round uint64) uint64 { return waiter<<16 | round }

func (n *waitNode) waiter() uint64 { return n.reg.owner >> 16 }

// waitNode is one lock on one node, with its queue.
type waitNode struct {
	reg        register
	place      uint64 // of the owner; 0: it did not wait
	claim      place  // the lock is free, and only this waiter may take it
	claimUntil int64
	queue      []place // by their numbers
	dead       bool

	rules waitRules
}

type place struct{ waiter, number uint64 }

// claimFor is how long a claim lasts.
const claimFor = 2_000_000_000

// waitRules are parts of the design left out.
type waitRules struct {
	noYield   bool // a waiter with a larger place gives back only when its time is over
	noGive    bool // a waiter keeps a minority
	lastFirst bool // a node claims for the last of its queue
	tellsNone bool // a give-back hands over to nobody
	noSweep   bool // a waiter that is woken asks the node that woke it, and no other
	noLooks   bool // a waiter does not ask unless it is woken
}

type waitAsk struct {
	waiter, round, place, token uint64
	ttl                         int64
	joins                       bool // during the hold
}

type waitAnswer struct {
	granted bool
	token   uint64
	earlier bool // if denied: the lock is with, or claimed for, a smaller place
}

// ask answers a request for the lock, and returns whom the node wakes.
func (n *waitNode) ask(now int64, a waitAsk) (answer waitAnswer, wakes uint64) {
	if n.claim.waiter != 0 && n.claimUntil <= now {
		n.claim = place{}
	}
	owner := waiterOwner(a.waiter, a.round)
	if n.reg.left(now) {
		switch {
		case n.waiter() != a.waiter:
			n.enter(a)
			return waitAnswer{earlier: n.place < a.place}, 0
		case n.reg.owner > owner:
			return waitAnswer{}, 0
		case n.reg.owner < owner:
			n.reg.release(now, n.reg.owner, 0, false)
		}
	}
	if n.claim.waiter == 0 && !a.joins && !n.reg.left(now) {
		wakes = n.handOver(now, a.waiter, a.place)
	}
	if n.claim.waiter != 0 && n.claim.waiter != a.waiter {
		n.enter(a)
		return waitAnswer{earlier: n.claim.number < a.place}, wakes
	}
	n.leave(a.waiter)
	n.claim = place{}
	_, token := n.reg.take(now, owner, a.ttl, a.token)
	n.place = a.place
	return waitAnswer{granted: true, token: token}, 0
}

// handOver claims the lock for the first of the queue, unless that is the one that asks, or comes after it.
func (n *waitNode) handOver(now int64, asks, number uint64) (wakes uint64) {
	if len(n.queue) == 0 || n.queue[0].waiter == asks || asks != 0 && n.queue[0].number > number {
		return 0
	}
	next := 0
	if n.rules.lastFirst {
		next = len(n.queue) - 1
	}
	n.claim, n.claimUntil = n.queue[next], now+claimFor
	n.leave(n.claim.waiter)
	return n.claim.waiter
}

func (n *waitNode) enter(a waitAsk) {
	if a.joins || slices.ContainsFunc(n.queue, func(p place) bool { return p.waiter == a.waiter }) {
		return
	}
	at, _ := slices.BinarySearchFunc(n.queue, a.place, func(p place, number uint64) int { return int(p.number) - int(number) })
	n.queue = slices.Insert(slices.Clone(n.queue), at, place{a.waiter, a.place})
}

func (n *waitNode) leave(waiter uint64) {
	n.queue = slices.DeleteFunc(slices.Clone(n.queue), func(p place) bool { return p.waiter == waiter })
}

// giveBack ends what a round has here. The waiter keeps its place.
func (n *waitNode) giveBack(now int64, waiter, round, number uint64) (wakes uint64) {
	if !n.reg.left(now) || n.reg.owner != waiterOwner(waiter, round) {
		return 0
	}
	n.reg.release(now, n.reg.owner, 0, false)
	n.enter(waitAsk{waiter: waiter, place: number})
	if n.rules.tellsNone {
		return 0
	}
	return n.handOver(now, waiter, number)
}

// end ends a hold, or the wait of a waiter, of which nothing remains.
func (n *waitNode) end(now int64, waiter, round uint64) (wakes uint64) {
	n.leave(waiter)
	if n.claim.waiter == waiter {
		n.claim = place{}
	}
	if n.reg.left(now) && n.waiter() == waiter && n.reg.owner <= waiterOwner(waiter, round) { // a give-back may be under way
		n.reg.release(now, n.reg.owner, 0, false)
	}
	if n.reg.left(now) || n.claim.waiter != 0 {
		return 0
	}
	return n.handOver(now, 0, 0)
}

// waiting is what a waiter does, and nothing else: it knows no time and no network. It counts by the Driver's ballot.
type waiting struct {
	id, place, proposal uint64
	phase               waitPhase
	round               uint64
	ballot              ballot
	asking              []bool // a request of this round is under way
	again               []bool // and the node has woken the waiter since

	rules waitRules
	send  func(node int, r waitRequest)
}

type waitPhase uint8

const (
	waitIdle waitPhase = iota
	waitAsks
	waitHolds
	waitGone // released, or given up
	waitDead
)

// waitRequest is what a waiter sends to a node.
type waitRequest struct {
	verb  verbOfWait
	ask   waitAsk // of ask; of others, waiter, round and place
	goal  uint64  // of raise
	round uint64
}

type verbOfWait uint8

const (
	askIt verbOfWait = iota
	raiseToo
	giveIt
	endIt
)

func (w *waiting) begin(nodes int) {
	w.phase, w.round = waitAsks, 1
	w.ballot = newBallot(nodes)
	w.asking, w.again = make([]bool, nodes), make([]bool, nodes)
	w.look()
}

// look asks all nodes that have not granted.
func (w *waiting) look() {
	for i := range w.asking {
		w.askNode(i)
	}
}

func (w *waiting) askNode(i int) {
	s := w.ballot.votes[i].state
	has := s == granted || s == raising || s == behind
	if w.asking[i] {
		w.again[i] = true
		return
	}
	if has {
		return
	}
	if w.phase == waitAsks {
		w.ballot.says(i, asked)
	}
	w.asking[i], w.again[i] = true, false
	w.request(i, askIt, waitAsk{waiter: w.id, round: w.round, place: w.place, token: max(w.proposal, w.ballot.goal), joins: w.phase == waitHolds})
}

func (w *waiting) request(i int, v verbOfWait, a waitAsk) {
	w.send(i, waitRequest{verb: v, ask: a, goal: w.ballot.goal, round: w.round})
}

// woken is a message of node i: the lock is claimed for the waiter there.
func (w *waiting) woken(i int) {
	switch {
	case w.phase == waitAsks && !w.rules.noSweep:
		w.look()
	case w.phase == waitAsks, w.phase == waitHolds:
		w.askNode(i)
	case w.phase == waitGone:
		w.request(i, endIt, waitAsk{waiter: w.id, round: w.round})
	}
}

// answered takes in an answer to a request of a round. It reports whether the waiter has the lock from now on.
func (w *waiting) answered(i int, round uint64, a waitAnswer) (wins bool) {
	if round != w.round || w.phase != waitAsks && w.phase != waitHolds {
		switch {
		case a.granted && w.phase == waitAsks:
			w.request(i, giveIt, waitAsk{waiter: w.id, round: round, place: w.place})
		case a.granted || w.phase == waitGone:
			w.request(i, endIt, waitAsk{waiter: w.id, round: round})
		}
		return false
	}
	w.asking[i] = false
	if w.phase == waitHolds { // it joins: see extend.go
		if a.granted {
			w.ballot.granted(i, a.token)
		}
		return false
	}
	if a.granted {
		w.ballot.granted(i, a.token)
		return w.counts()
	}
	w.ballot.says(i, refused)
	switch {
	case w.again[i]:
		w.askNode(i)
	case a.earlier && !w.rules.noYield && w.minority():
		w.giveBack()
	}
	return false
}

// raised takes in the answer to a raise.
func (w *waiting) raised(i int, round, goal uint64, ok bool) (wins bool) {
	if round != w.round || w.phase != waitAsks {
		return false
	}
	if ok {
		w.ballot.granted(i, goal)
	} else {
		w.ballot.says(i, gone)
	}
	return w.counts()
}

func (w *waiting) counts() (wins bool) {
	for _, i := range w.ballot.raise() {
		w.request(i, raiseToo, waitAsk{waiter: w.id, round: w.round})
	}
	if w.ballot.outcome() != won {
		return false
	}
	w.phase = waitHolds
	return true
}

// minority reports whether nodes have granted, and too few.
func (w *waiting) minority() bool {
	n := w.ballot.in(granted, raising, behind)
	return w.phase == waitAsks && n > 0 && n < majority(len(w.asking))
}

// giveBack ends the round, because another comes first, or because its time is over.
func (w *waiting) giveBack() {
	round := w.round
	w.round++
	for i := range w.asking {
		if slices.Contains([]state{granted, raising, behind, gone}, w.ballot.votes[i].state) {
			w.request(i, giveIt, waitAsk{waiter: w.id, round: round, place: w.place})
		}
		w.asking[i], w.again[i] = false, false
	}
	w.ballot = newBallot(len(w.asking))
	for i := range w.asking {
		w.ballot.says(i, refused)
	}
}

// leave releases a hold, or ends a wait.
func (w *waiting) leave() {
	w.phase = waitGone
	for i := range w.asking {
		w.request(i, endIt, waitAsk{waiter: w.id, round: w.round})
	}
}
