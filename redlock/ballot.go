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

// largest returns the largest token that a node has accepted from the attempt.
func (b *ballot) largest() (token uint64) {
	for _, v := range b.votes {
		token = max(token, v.token)
	}
	return token
}

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

// agreed returns how many votes count for the attempt.
func (b *ballot) agreed() int {
	return b.count(func(v vote) bool { return v.state == granted && v.token == b.goal })
}

// possible returns how many votes count for the attempt, or may come to.
func (b *ballot) possible() int {
	return b.count(func(v vote) bool {
		ours := v.state == granted || v.state == raising
		return v.state == asked || ours && (b.goal == 0 || v.token <= b.goal)
	})
}

// aim sets the goal if a majority has granted the lock.
func (b *ballot) aim() {
	if b.goal > 0 || b.in(granted) < majority(len(b.votes)) {
		return
	}
	for _, v := range b.votes {
		if v.state == granted {
			b.goal = max(b.goal, v.token)
		}
	}
}

// lower gives up the goal if it is too far ahead for a majority.
func (b *ballot) lower() {
	if b.in(behind) == 0 || b.possible() >= majority(len(b.votes)) {
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
	b.aim()
	var nodes []int
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
	quorum := majority(len(b.votes))
	minority := len(b.votes) - quorum
	switch {
	case b.agreed() >= quorum:
		return won
	case b.possible() >= quorum:
		return undecided
	case b.in(absent) > minority:
		return failed
	case b.in(asked, absent) > minority:
		return undecided
	case b.in(refused) > 0:
		return denied
	default:
		return failed
	}
}
