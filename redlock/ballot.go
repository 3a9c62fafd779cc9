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

// ballot counts the votes of one attempt. It decides and nothing else: it knows no time, no network
// and no goroutine, so that a test can take it through every order of events.
//
// The rule that keeps tokens rising: a node accepts a token only in the step in which it grants, or
// still has, the lock of this very attempt, and only if the token is larger than any it has
// accepted before, or is that lock's own already. Only nodes that have the lock and the same token
// count. Where the nodes that granted the lock differ, those with a smaller token are raised, once, to
// the largest. If that is so far ahead of their clocks that too many refuse, those that have it are left out, and the
// others raised to the largest of theirs.
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
	gone                 // the node had granted the lock, and says that it has ended
	absent               // failed, or has not answered in time
	granted              // the lock, under vote.token
	raising              // granted, and asked to raise its token to the goal
	behind               // granted, and the goal is too far ahead for the node
	states
)

func newBallot(nodes int) ballot {
	return ballot{votes: make([]vote, nodes)}
}

// granted: the node has granted the lock under token.
func (b *ballot) granted(node int, token uint64) {
	b.votes[node] = vote{granted, token}
}

// aim sets the goal if a majority has granted the lock.
func (b *ballot) aim() {
	n, largest := 0, uint64(0)
	for _, v := range b.votes {
		if v.state == granted {
			n++
			largest = max(largest, v.token)
		}
	}
	if n >= majority(len(b.votes)) {
		b.goal = largest
	}
}

// says: the node does not have the lock, for that reason.
func (b *ballot) says(node int, s state) { b.votes[node] = vote{state: s} }

// raised: the node has accepted what was the goal.
func (b *ballot) raised(node int, goal uint64) { b.votes[node] = vote{granted, goal} }

// refusedGoal: the node has the lock under its own token, and does not accept what was the goal.
func (b *ballot) refusedGoal(node int, goal uint64) {
	b.votes[node].state = granted
	if goal == b.goal {
		b.votes[node].state = behind
	}
}

// lower sets another goal if no majority can come to have this one, for it is too far ahead.
func (b *ballot) lower() {
	refused := func(v vote) bool { return v.state == behind }
	if !slices.ContainsFunc(b.votes, refused) || b.possible() >= majority(len(b.votes)) {
		return
	}
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

// raise returns the nodes to be raised to the goal now, each once.
func (b *ballot) raise() []int {
	b.lower()
	if b.goal == 0 {
		b.aim()
	}
	var nodes []int
	for i := range b.votes {
		if v := &b.votes[i]; v.state == granted && v.token < b.goal {
			v.state = raising
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// agrees says whether a vote counts for the attempt, and may whether it can come to.
func (b *ballot) agrees(v vote) bool { return v.state == granted && v.token == b.goal }

func (b *ballot) may(v vote) bool {
	ours := v.state == granted || v.state == raising
	return v.state == asked || ours && (b.goal == 0 || v.token <= b.goal)
}

// possible is how many votes count for the attempt, or may come to.
func (b *ballot) possible() (n int) {
	for _, v := range b.votes {
		if b.may(v) {
			n++
		}
	}
	return n
}

// outcome is final unless it is undecided. Where the lock cannot be had any more the ballot stays
// undecided until it is known why: an outage must not pass for another holder.
func (b *ballot) outcome() outcome {
	agreed := 0
	var count [states]int
	for _, v := range b.votes {
		count[v.state]++
		if b.agrees(v) {
			agreed++
		}
	}
	nodes := len(b.votes)
	quorum := majority(nodes)
	switch {
	case agreed >= quorum:
		return won
	case b.possible() >= quorum:
		return undecided
	case count[absent] > nodes-quorum:
		return failed
	case nodes-count[asked]-count[absent] < quorum:
		return undecided
	case count[refused] > 0:
		return denied
	default:
		return failed
	}
}
