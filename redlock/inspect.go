package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// A split vote is over when those who have lost it have given back what they got.
const (
	surveys      = 5
	surveysApart = 10 * time.Millisecond
)

// Inspect implements driver.Operator. It asks all nodes at once, and returns as soon as a
// majority has given the same answer: the lock is held under the same token and metadata, or it is
// not held. Otherwise it returns an [Error], which tells how each node has answered. This happens
// while votes are split. It also happens if, after the grant, the holder has lost the lock at some
// nodes, and got it at others, under larger tokens.
//
// Left is for how long a majority has the lock. If it is not held, Token is the largest that nodes
// have accepted, even in an attempt that failed. Waiters are those of the node that knows most of
// them. The ID of the Holder is empty, because each node has another ID for it.
func (d *backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	quorum := majority(len(d.nodes))
	for try := 1; ; try++ {
		says, err := d.survey(ctx, name, survey.decided)
		if err != nil {
			return driver.State{}, err
		}
		state, agreed := says.verdict()
		if agreed >= quorum {
			return state, nil
		}
		split := answered(says) >= quorum
		if !split || try == surveys || clock.Sleep(ctx, surveysApart) != nil {
			return driver.State{}, d.disagreement(says.vote) // how they voted says more than that there is no time for another vote
		}
	}
}

// survey is what each node says of one lock.
type survey []answer[driver.State]

// survey asks all nodes for the state of a lock.
func (d *backend) survey(ctx context.Context, name string, enough func(survey) bool) (survey, error) {
	return poll(ctx, d, 0, d.nodes, func(ctx context.Context, n *node) (driver.State, error) {
		return n.inspect(ctx, name)
	}, func(says []answer[driver.State]) bool { return enough(says) })
}

func (n *node) inspect(ctx context.Context, name string) (driver.State, error) {
	inspector, ok := n.Node.(driver.Operator)
	if !ok {
		return driver.State{}, fmt.Errorf("%w: a %T does not tell who holds a lock", driver.ErrUnsupported, n.Node)
	}
	return inspector.Inspect(ctx, name)
}

// decided reports whether a majority agrees, or cannot agree any more.
func (s survey) decided() bool {
	waiting := 0
	for _, a := range s {
		if a.err == errWaiting { //nolint:errorlint // never wrapped
			waiting++
		}
	}
	_, agreed := s.verdict()
	return agreed >= majority(len(s)) || agreed+waiting < majority(len(s))
}

// verdict returns what most nodes say, and how many say it. They say the same if the lock is held
// under the same token and metadata, or if it is not held.
func (s survey) verdict() (most driver.State, agreed int) {
	type view struct {
		held     bool
		metadata string
		token    uint64
	}
	left := map[view][]time.Duration{}
	since := map[view]time.Time{} // by the node whose clock is the furthest ahead: the token is from there
	waiters := map[view][]driver.Participant{}
	var last uint64
	for _, a := range s {
		if a.err != nil {
			continue
		}
		v := view{held: a.value.Held}
		if v.held {
			v.metadata, v.token = a.value.Holder.Metadata, a.value.Token
		} else {
			last = max(last, a.value.Token)
		}
		left[v] = append(left[v], a.value.Left)
		if at := a.value.Since; since[v].IsZero() || !at.IsZero() && at.Before(since[v]) {
			since[v] = at
		}
		if len(a.value.Waiters) > len(waiters[v]) {
			waiters[v] = a.value.Waiters
		}
	}
	for v, all := range left {
		if agreed < len(all) {
			agreed = len(all)
			slices.Sort(all)
			shortest := all[max(0, agreed-majority(len(s)))] // of the majority that has it longest
			most = driver.State{
				Held: v.held, Holder: driver.Participant{Metadata: v.metadata}, Left: shortest, Since: since[v], Token: v.token, Waiters: waiters[v],
			}
		}
	}
	if !most.Held {
		most.Token = last
	}
	return most, agreed
}

// vote returns what node i has said.
func (s survey) vote(i int) error {
	switch a := s[i]; {
	case a.err != nil:
		return a.err
	case a.value.Held:
		return heldUnder(a.value.Token)
	default:
		return driver.ErrNotHeld
	}
}

// heldUnder is the vote of a node that has granted the lock, under this token.
type heldUnder uint64

func (token heldUnder) Error() string { return fmt.Sprintf("held under token %d", uint64(token)) }

// Is reports whether target is ErrHeld.
func (heldUnder) Is(target error) bool { return target == driver.ErrHeld }

// Warnings implements [driver.Warner]. It asks all nodes that can tell, at once, and returns an
// error if none of them has answered.
func (d *backend) Warnings(ctx context.Context) ([]string, error) {
	var nodes []*node
	for _, n := range d.nodes {
		if _, ok := n.Node.(driver.Warner); ok {
			nodes = append(nodes, n)
		}
	}
	answers, err := poll(ctx, d, 0, nodes, func(ctx context.Context, n *node) ([]string, error) {
		return n.Node.(driver.Warner).Warnings(ctx)
	}, nil)
	if err != nil {
		return nil, err
	}
	var warnings []string
	var errs []error
	for i, a := range answers {
		if a.err != nil {
			errs = append(errs, a.err)
		}
		for _, w := range a.value {
			warnings = append(warnings, nodes[i].name+": "+w)
		}
	}
	if len(nodes) > 0 && len(errs) == len(nodes) {
		return nil, errors.Join(errs...)
	}
	return warnings, nil
}
