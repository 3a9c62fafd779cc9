package redlock

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
