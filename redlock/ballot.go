package redlock

import "slices"

// outcome is how an attempt to take the lock stands.
type outcome int

const (
	undecided outcome = iota
	won               // a majority has granted the lock, and has accepted the same token in that
	denied            // a majority answers, and another has the lock at too many of the nodes
	failed            // no majority answers, or none agrees on a token
)

// ballot counts the votes of one attempt. It is a pure state machine: it knows no time, no network
// and no goroutine, so that a test can take it through every order of events.
//
// The token rule. (1) A node accepts a token only in the step in which it grants, or still has, the
// proposer's lease, and only if the token is larger than its last, or is that lease's own. (2) Only
// nodes that have both the lease and the same token count. (3) Where the granted tokens differ, one
// owner-checked raise to the largest of them must reach a majority. If that token is too far ahead
// of too many nodes' clocks, the nodes that have it are left out, and the others raised to theirs.
//
// Tokens then rise with every grant, because two majorities share a node, while (a) each node
// excludes until release or expiry, (b) a node's last token never falls, (c) the set of nodes is
// fixed, and (d) clocks run at the same rate within the allowance. Each part is necessary:
// TestTokens_breakWhenAPartOfTheRuleIsLeftOut.
type ballot struct {
	goal  uint64 // the token to agree on; 0 until a majority has granted the lock
	votes []vote
}

type vote struct {
	state state
	token uint64 // that the node has accepted, if granted
}

type state uint8

const (
	asked   state = iota // and has not answered
	refused              // another has the lock
	gone                 // the node had granted the lock, and has answered that it has ended, or it was given back
	absent               // failed, or has not answered in time
	granted              // the lock, under vote.token
	raising              // granted, and asked to raise its token to the goal
	behind               // granted, and the goal is too far ahead for the node
)

func newBallot(nodes int) ballot { return ballot{votes: make([]vote, nodes)} }

// granted: the node has granted the lock under token, or has raised its token to that.
func (b *ballot) granted(node int, token uint64) { b.votes[node] = vote{granted, token} }

// says: the node does not have the lock, for that reason.
func (b *ballot) says(node int, s state) { b.votes[node] = vote{state: s} }

// refusedGoal: the node has the lock under its own token, and does not accept what was the goal.
func (b *ballot) refusedGoal(node int, goal uint64) {
	b.votes[node].state = granted
	if goal == b.goal {
		b.votes[node].state = behind
	}
}

// counts reports whether the node's vote counts for the attempt.
func (b *ballot) counts(node int) bool {
	return b.votes[node].state == granted && b.votes[node].token == b.goal
}

// has returns how many nodes have the lock for the attempt.
func (b *ballot) has() int { return b.in(granted, raising, behind) }

// in returns how many votes are in one of the states.
func (b *ballot) in(states ...state) int {
	return b.count(func(v vote) bool { return slices.Contains(states, v.state) })
}

func (b *ballot) count(counts func(vote) bool) (n int) {
	for _, v := range b.votes {
		if counts(v) {
			n++
		}
	}
	return n
}

// largest returns the largest token that a node has accepted from the attempt.
func (b *ballot) largest() (token uint64) {
	for _, v := range b.votes {
		token = max(token, v.token)
	}
	return token
}

// possible returns how many votes count for the attempt, or may come to.
func (b *ballot) possible() int {
	return b.count(func(v vote) bool {
		ours := v.state == granted || v.state == raising
		return v.state == asked || ours && (b.goal == 0 || v.token <= b.goal)
	})
}

// raise returns the nodes to be raised to the goal now, each once. It sets the goal when a majority
// has granted the lock, and gives it up if it is too far ahead for a majority.
func (b *ballot) raise() (nodes []int) {
	quorum := majority(len(b.votes))
	if b.in(behind) > 0 && b.possible() < quorum {
		for i := range b.votes {
			switch v := &b.votes[i]; {
			case v.state == behind:
				v.state = granted
			case v.state == granted && v.token >= b.goal:
				v.state = absent
			}
		}
		b.goal = 0
	}
	if b.goal == 0 && b.in(granted) >= quorum {
		for _, v := range b.votes {
			if v.state == granted {
				b.goal = max(b.goal, v.token)
			}
		}
	}
	for i := range b.votes {
		if v := &b.votes[i]; v.state == granted && v.token < b.goal {
			v.state = raising
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// outcome is final unless it is undecided. If the lock cannot be had any more the ballot stays
// undecided until it is known why: an outage must not pass for another holder.
func (b *ballot) outcome() outcome {
	quorum, few := majority(len(b.votes)), minority(len(b.votes))
	agreed := b.count(func(v vote) bool { return v.state == granted && v.token == b.goal })
	switch {
	case agreed >= quorum:
		return won
	case b.possible() >= quorum:
		return undecided
	case b.in(absent) > few:
		return failed
	case b.in(asked, absent) > few:
		return undecided
	case b.in(refused) > 0:
		return denied
	default:
		return failed
	}
}

// majority returns how many of so many nodes are more than half.
func majority(nodes int) int { return nodes/2 + 1 }

// minority returns how many nodes a majority can do without.
func minority(nodes int) int { return nodes - majority(nodes) }

// tally counts how the nodes stand to an Extend or a Release of a hold.
type tally struct {
	nodes    int
	agreed   int
	waiting  int // have yet to answer
	without  int // had the lock not all the time: if too many had not, another may have come and gone
	doubtful int // may have been without it, and have yet to answer
}

func (t *tally) add(agreed, waits, without bool) {
	if agreed {
		t.agreed++
	}
	if waits {
		t.waiting++
	}
	switch {
	case without:
		t.without++
	case waits:
		t.doubtful++
	}
}

func (t *tally) quorum() int { return majority(t.nodes) }

// lost reports whether no majority has had the lock all the time.
func (t *tally) lost() bool { return t.without > minority(t.nodes) }

// mayBeLost reports whether lost may come to be true, or is.
func (t *tally) mayBeLost() bool { return t.without+t.doubtful > minority(t.nodes) }

// succeeded reports whether a majority has agreed, and lost cannot come to be true.
func (t *tally) succeeded() bool { return t.agreed >= t.quorum() && !t.mayBeLost() }
