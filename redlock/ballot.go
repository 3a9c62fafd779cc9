package redlock

import "slices"

// outcome is the result of a ballot.
type outcome int

const (
	undecided outcome = iota
	won               // a majority has granted the lease under one token
	denied            // a majority answers, and too many nodes have granted another owner
	failed            // no majority answers, or none accepts one token
)

// ballot is the quorum vote of one attempt: which nodes have granted the lease, and under which
// tokens. It is a pure state machine, without time, network and goroutines, so that a test can take
// it through every order of replies.
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
	goal  uint64 // the token that a majority has to accept; 0 until a majority has granted the lease
	votes []vote
}

type vote struct {
	state voteState
	token uint64 // that the node has accepted, if it has granted the lease
}

type voteState uint8

const (
	asked   voteState = iota // a proposal is in flight
	refused                  // another owner has the lock
	gone                     // granted, but the lease has ended or was released
	absent                   // no reply in time, an error, or left out by raise: the outcome is unknown
	granted                  // under vote.token
	raising                  // granted, and a raise to the goal is in flight
	behind                   // granted, and the goal is too far ahead of the node's clock
)

func newBallot(nodes int) ballot { return ballot{votes: make([]vote, nodes)} }

// grant records that the node has granted the lease under token, or has raised it to token.
func (b *ballot) grant(node int, token uint64) { b.votes[node] = vote{granted, token} }

// record records a vote without a lease.
func (b *ballot) record(node int, s voteState) { b.votes[node] = vote{state: s} }

// rejectGoal records that the node keeps its token, because goal is too far ahead of its clock.
func (b *ballot) rejectGoal(node int, goal uint64) {
	b.votes[node].state = granted
	if goal == b.goal {
		b.votes[node].state = behind
	}
}

// agrees reports whether the node has granted the lease under the goal.
func (b *ballot) agrees(node int) bool {
	return b.votes[node].state == granted && b.votes[node].token == b.goal
}

// leases returns how many nodes have granted the lease.
func (b *ballot) leases() int { return b.countIn(granted, raising, behind) }

// countIn returns the number of votes in one of the states.
func (b *ballot) countIn(states ...voteState) int {
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

// largest returns the largest token that a node has accepted in this ballot, or 0.
func (b *ballot) largest() (token uint64) {
	for _, v := range b.votes {
		token = max(token, v.token)
	}
	return token
}

// possible returns the number of votes that agree, or still may.
func (b *ballot) possible() int {
	return b.count(func(v vote) bool {
		ours := v.state == granted || v.state == raising
		return v.state == asked || ours && (b.goal == 0 || v.token <= b.goal)
	})
}

// raise returns the nodes whose token is to be raised now; each is returned once per goal. It sets
// the goal when a majority has granted the lease, to the largest of their tokens: no smaller one
// can be accepted by all. If the goal is too far ahead of the clocks of a majority, the nodes that
// have it are left out as absent, and the goal is set anew from the others.
func (b *ballot) raise() (nodes []int) {
	quorum := majority(len(b.votes))
	if b.countIn(behind) > 0 && b.possible() < quorum {
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
	if b.goal == 0 && b.countIn(granted) >= quorum {
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

// outcome is final unless it is undecided. A ballot that cannot be won any more stays undecided
// until the reason is known: an outage must not be reported as another holder.
func (b *ballot) outcome() outcome {
	quorum, few := majority(len(b.votes)), minority(len(b.votes))
	agreed := b.count(func(v vote) bool { return v.state == granted && v.token == b.goal })
	switch {
	case agreed >= quorum:
		return won
	case b.possible() >= quorum:
		return undecided
	case b.countIn(absent) > few:
		return failed
	case b.countIn(asked, absent) > few:
		return undecided
	case b.countIn(refused) > 0:
		return denied
	default:
		return failed
	}
}

// majority returns the smallest quorum of so many nodes.
func majority(nodes int) int { return nodes/2 + 1 }

// minority returns how many nodes may fail without the loss of a majority.
func minority(nodes int) int { return nodes - majority(nodes) }

// tally counts the nodes' votes on an Extend or a Release of a hold.
type tally struct {
	nodes        int
	agreed       int
	pending      int // have a request in flight
	gaps         int // did not have the lease during the whole hold: a majority of others may have granted it
	possibleGaps int // may turn out to be gaps, because their requests are in flight
}

func (t *tally) add(agreed, pending, gap bool) {
	if agreed {
		t.agreed++
	}
	if pending {
		t.pending++
	}
	switch {
	case gap:
		t.gaps++
	case pending:
		t.possibleGaps++
	}
}

// lost reports whether so many nodes had a gap that another owner may have held the lock in
// between.
func (t *tally) lost() bool { return t.gaps > minority(t.nodes) }

// mayBeLost reports whether the hold is lost, or replies in flight may show that it is.
func (t *tally) mayBeLost() bool { return t.gaps+t.possibleGaps > minority(t.nodes) }

// succeeded reports whether a majority has agreed, and no reply in flight can show a loss.
func (t *tally) succeeded() bool { return t.agreed >= majority(t.nodes) && !t.mayBeLost() }
