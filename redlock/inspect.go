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

// A split vote ends when the losers have released their leases: then the survey is repeated.
const (
	surveys        = 5
	surveyInterval = 10 * time.Millisecond
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
		split := countAnswers(says) >= quorum
		if !split || try == surveys || clock.Sleep(ctx, surveyInterval) != nil {
			return driver.State{}, d.disagreement(says.vote) // the votes say more than ctx's error
		}
	}
}

// survey is the state of one lock by each node.
type survey []answer[driver.State]

// survey asks all nodes for the state of a lock.
func (d *backend) survey(ctx context.Context, name string, enough func(survey) bool) (survey, error) {
	return poll(ctx, d, 0, d.nodes, func(ctx context.Context, n *node) (driver.State, error) {
		return n.inspect(ctx, name)
	}, func(says []answer[driver.State]) bool { return enough(says) })
}

func (n *node) inspect(ctx context.Context, name string) (driver.State, error) {
	o, err := n.operator("does not tell who holds a lock")
	if err != nil {
		return driver.State{}, err
	}
	return o.Inspect(ctx, name)
}

// operator returns the node's Operator, or an error that says what it cannot do.
func (n *node) operator(cannot string) (driver.Operator, error) {
	if o, ok := n.Node.(driver.Operator); ok {
		return o, nil
	}
	return nil, fmt.Errorf("%w: a %T %s", driver.ErrUnsupported, n.Node, cannot)
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

// verdict returns the state on which most nodes agree, and how many do. Nodes agree if the lock is
// held under the same token and metadata, or if it is not held.
func (s survey) verdict() (most driver.State, agreed int) {
	type view struct {
		held     bool
		metadata string
		token    uint64
	}
	left := map[view][]time.Duration{}
	since := map[view]time.Time{} // the earliest
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
			shortest := all[max(0, agreed-majority(len(s)))] // of the majority that has it for the longest
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

// vote returns the vote of node i.
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

// heldUnder is the vote of a node that has granted the lock under this token.
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
