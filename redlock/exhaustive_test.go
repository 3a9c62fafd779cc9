package redlock

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// The exploration takes the ballot of the Driver, and the model of the nodes, through every order in
// which the messages of a few attempts can arrive: late, never, or twice. It knows no time. What sane
// clocks guarantee is in it as an order of events: a node lets a lock expire only after the attempt that took it
// has given it up.

const (
	exNodes    = 3
	exAttempts = 3
)

// exploration is what is explored.
type exploration struct {
	relax     relaxation
	proposals []uint64        // of each attempt; all of one contender but the last
	last      [exNodes]uint64 // tokens accepted before
	ahead     bool            // the clock of one node is far ahead of all others
	dead      int             // so many nodes are held by a process that is dead
	doubles   int             // how many messages may arrive twice
	silences  int             // how often an attempt may cease to wait for a node

	enough int // violations after which the exploration ends; 0: it does not

	seen       map[uint64]struct{}
	violations int
}

type phase uint8

const (
	idle phase = iota
	asking
	holding
	over
)

// exState is one state of the world. The arrays by node are sorted for the purpose of comparing states.
type exState struct {
	nodes    [exNodes]register
	attempts [exAttempts]exAttempt
	largest  uint64
	doubles  int
	silences int
	forgets  int
}

type exAttempt struct {
	phase phase
	goal  uint64
	votes [exNodes]vote
	net   [exNodes]exNet
}

// exNet is what is under way between an attempt and a node.
type exNet struct {
	take, takeAgain, raise, raiseAgain, release bool
	answer                                      uint8 // to the take: see below
	token                                       uint64
	goal                                        uint64 // of the raise
	raised                                      uint8
	ours                                        bool // the node has told the attempt that it has its lock
}

const (
	none uint8 = iota
	yes
	no
	tooFar // ahead of the node's clock
)

const deadOwner = 99

// explore returns how many states there are, and counts the grants that are out of order, or beside another.
func (x *exploration) explore() (states int) {
	x.seen = map[uint64]struct{}{}
	var s exState
	for i := range s.nodes {
		s.nodes[i] = register{known: x.last[i] > 0, last: x.last[i], rules: x.relax.rules}
		if x.ahead {
			s.nodes[i].most, s.nodes[i].clock = 20, 1
			if i == 0 {
				s.nodes[i].most, s.nodes[i].clock = 120, 100
			}
		}
		if i < x.dead {
			s.nodes[i].known, s.nodes[i].owner, s.nodes[i].until = true, deadOwner, 1
		}
	}
	s.doubles, s.silences = x.doubles, x.silences
	if x.relax.forget {
		s.forgets = 1
	}
	s.begin(0)
	s.begin(len(x.proposals) - 1)
	x.visit(&s)
	return len(x.seen)
}

// visit takes every step that is possible in s.
func (x *exploration) visit(s *exState) {
	if x.enough > 0 && x.violations >= x.enough {
		return
	}
	key := s.key()
	if _, again := x.seen[key]; again {
		return
	}
	x.seen[key] = struct{}{}
	for a := range x.proposals {
		x.visitAttempt(s, a)
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.owner != 0 && n.until > 0 && x.mayExpire(s, n.owner) {
			x.step(s, func(s *exState) { s.nodes[i].owner = 0 })
		}
		if s.forgets > 0 {
			x.step(s, func(s *exState) { s.forgets--; s.nodes[i].forget() })
		}
	}
}

func (s *exState) begin(a int) {
	at := &s.attempts[a]
	at.phase = asking
	for i := range at.net {
		at.net[i].take = true
	}
}

// step visits the state that f makes of s.
func (x *exploration) step(s *exState, f func(*exState)) {
	next := *s
	f(&next)
	next.tidy(x.relax.acceptWithoutLock)
	x.visit(&next)
}

func (x *exploration) owner(a int) uint64 {
	if x.relax.oneOwner && a < len(x.proposals)-1 {
		return 1
	}
	return uint64(a + 1)
}

func (x *exploration) mayExpire(s *exState, owner uint64) bool {
	for a := range x.proposals {
		if at := &s.attempts[a]; x.owner(a) == owner && (at.phase == asking || at.phase == holding) {
			return false
		}
	}
	return true
}

func (x *exploration) visitAttempt(s *exState, a int) {
	at := &s.attempts[a]
	switch at.phase {
	case idle:
		if s.attempts[a-1].phase == over {
			x.step(s, func(s *exState) { s.begin(a) })
		}
		return
	case asking, holding: // until it is done, or its time is
		x.step(s, func(s *exState) { x.end(s, a) })
	}
	for i := range at.net {
		x.visitNet(s, a, i)
	}
}

// visitNet delivers what is under way between an attempt and a node.
func (x *exploration) visitNet(s *exState, a, i int) {
	net := s.attempts[a].net[i]
	deliver := func(underWay bool, f func(s *exState, at *exAttempt, net *exNet, node *register)) {
		if underWay {
			x.step(s, func(s *exState) {
				at := &s.attempts[a]
				f(s, at, &at.net[i], &s.nodes[i])
			})
		}
	}
	take := func(node *register) (bool, uint64) { return node.take(0, x.owner(a), 1, x.proposals[a]) }
	deliver(net.take, func(s *exState, _ *exAttempt, net *exNet, node *register) {
		net.take, net.answer = false, no
		var ok bool
		if ok, net.token = take(node); ok {
			net.answer = yes
		}
	})
	deliver(net.take && s.doubles > 0, func(s *exState, _ *exAttempt, net *exNet, _ *register) {
		s.doubles--
		net.takeAgain = true
	})
	deliver(net.takeAgain, func(_ *exState, _ *exAttempt, net *exNet, node *register) {
		net.takeAgain = false
		take(node)
	})
	deliver(net.answer != none, func(s *exState, _ *exAttempt, _ *exNet, _ *register) { x.answered(s, a, i) })
	deliver(net.raise, func(_ *exState, _ *exAttempt, net *exNet, node *register) {
		net.raise, net.raised = false, no
		switch far := node.tooFar(net.goal); {
		case node.raise(0, x.owner(a), net.goal):
			net.raised = yes
		case far && node.owner == x.owner(a) && node.left(0):
			net.raised = tooFar
		}
	})
	deliver(net.raise && s.doubles > 0, func(s *exState, _ *exAttempt, net *exNet, _ *register) {
		s.doubles--
		net.raiseAgain = true
	})
	deliver(net.raiseAgain, func(_ *exState, _ *exAttempt, net *exNet, node *register) {
		net.raiseAgain = false
		node.raise(0, x.owner(a), net.goal)
	})
	deliver(net.raised != none, func(s *exState, _ *exAttempt, _ *exNet, _ *register) { x.raised(s, a, i) })
	deliver(net.release, func(_ *exState, _ *exAttempt, net *exNet, node *register) {
		net.release = false
		node.release(0, x.owner(a), net.token, false)
	})
	if at := &s.attempts[a]; at.phase == asking && s.silences > 0 && at.votes[i].state == asked {
		x.step(s, func(s *exState) {
			s.silences--
			x.vote(s, a, func(b *ballot) { b.says(i, absent) })
		})
	}
}

// vote changes the ballot of an attempt, sends the raises that follow, and ends the attempt if it is decided.
func (x *exploration) vote(s *exState, a int, change func(*ballot)) {
	at := &s.attempts[a]
	b := ballot{goal: at.goal, votes: at.votes[:]}
	change(&b)
	raise := b.raise
	if x.relax.raiseUnchecked {
		raise = func() []int { return raiseAll(&b) }
	}
	for _, i := range raise() {
		if x.relax.countTogether {
			b.granted(i, b.goal)
			continue
		}
		at.net[i].raise, at.net[i].goal = true, b.goal
	}
	outcome := b.outcome()
	if x.relax.acceptWithoutLock {
		outcome = countApart(&b, func(i int) uint64 { return at.net[i].token })
	}
	at.goal = b.goal
	switch outcome {
	case won:
		x.win(s, a)
	case denied, failed:
		x.end(s, a)
	}
}

func (x *exploration) answered(s *exState, a, i int) {
	at := &s.attempts[a]
	net := &at.net[i]
	ok := net.answer == yes
	net.answer = none
	net.ours = ok
	if at.phase == over {
		net.release = ok
		return
	}
	if at.phase == asking {
		x.vote(s, a, func(b *ballot) {
			if ok {
				b.granted(i, net.token)
			} else {
				b.says(i, refused)
			}
		})
	}
}

func (x *exploration) raised(s *exState, a, i int) {
	at := &s.attempts[a]
	answer, goal := at.net[i].raised, at.net[i].goal
	at.net[i].raised = none
	if at.phase == asking {
		x.vote(s, a, func(b *ballot) {
			switch answer {
			case yes:
				b.granted(i, goal)
			case tooFar:
				b.refusedGoal(i, goal)
			default:
				b.says(i, gone)
			}
		})
	}
}

func (x *exploration) win(s *exState, a int) {
	at := &s.attempts[a]
	for other := range s.attempts {
		if s.attempts[other].phase == holding {
			x.violations++
			break
		}
	}
	if at.goal <= s.largest {
		x.violations++
	}
	s.largest = max(s.largest, at.goal)
	at.phase = holding
}

// end releases at the nodes that have told of their lock; the others are released when they do.
func (x *exploration) end(s *exState, a int) {
	at := &s.attempts[a]
	at.phase = over
	for i := range at.net {
		at.net[i].release = at.net[i].ours
	}
}

// tidy forgets what makes no difference any more, so that fewer states differ.
func (s *exState) tidy(accepted bool) {
	for a := range s.attempts {
		at := &s.attempts[a]
		for i := range at.net {
			net := &at.net[i]
			if at.phase == over {
				net.release = net.release || net.answer == yes // once it is told
				net.answer, net.raised, net.ours, at.votes[i] = none, none, false, vote{}
			}
			if net.answer != yes && !accepted {
				net.token = 0
			}
			if !net.raise && !net.raiseAgain && net.raised == none {
				net.goal = 0
			}
		}
		if at.phase == over {
			at.goal = 0
		}
	}
}

// key is the same for states that differ in the names of the nodes alone. It may be the same for two
// other states with a chance of one in 2^64.
func (s *exState) key() uint64 {
	var columns [exNodes][32]byte
	for i := range columns {
		n := &s.nodes[i]
		c := append(columns[i][:0], byte(n.owner), byte(n.last), byte(n.clock), flags(n.known))
		for a := range s.attempts {
			at := &s.attempts[a]
			net := &at.net[i]
			c = append(c, byte(at.votes[i].state), byte(at.votes[i].token), net.answer, byte(net.token), byte(net.goal), net.raised,
				flags(net.take, net.takeAgain, net.raise, net.raiseAgain, net.release, net.ours))
		}
	}
	slices.SortFunc(columns[:], func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	h := digestOf(0, s.largest, uint64(s.doubles), uint64(s.silences), uint64(s.forgets))
	for a := range s.attempts {
		h = digestOf(h, uint64(s.attempts[a].phase), s.attempts[a].goal)
	}
	for i := range columns {
		for part := range slices.Chunk(columns[i][:], 8) {
			h = digestOf(h, binary.LittleEndian.Uint64(part))
		}
	}
	return h
}

// countApart counts those that granted the lock and those that accepted the token apart: the relaxation
// that goes with rules.acceptWithoutLock. accepted is what the nodes that denied the lock accepted.
func countApart(b *ballot, accepted func(node int) uint64) outcome {
	locks := 0
	tokens := map[uint64]int{}
	for i, v := range b.votes {
		switch v.state {
		case granted, raising:
			locks++
			tokens[v.token]++
		case refused:
			if token := accepted(i); token > 0 {
				tokens[token]++
			}
		}
	}
	quorum := majority(len(b.votes))
	for token, n := range tokens {
		if n >= quorum && locks >= quorum {
			b.goal = token
			return won
		}
	}
	return b.outcome()
}

// raiseAll also raises those that have denied the lock: the relaxation that goes with
// rules.raiseUnchecked.
func raiseAll(b *ballot) []int {
	nodes := b.raise()
	for i := range b.votes {
		if v := &b.votes[i]; b.goal != 0 && v.state == refused {
			v.state = raising
			nodes = append(nodes, i)
		}
	}
	return nodes
}

func flags(set ...bool) (b byte) {
	for _, f := range set {
		b *= 2
		if f {
			b++
		}
	}
	return b
}
