package redlock

import (
	"context"
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

// Inspect implements [driver.Inspector]. It asks all nodes at once, and has its answer as soon as a majority says the same: that
// the lock is held under the same token and metadata, or that it is not held. Else the error, an [Error], tells how each node has answered.
// That is so while votes are split, and where a holder that has lost nodes since has it at others under larger tokens.
//
// Left is for how long a majority has the lock. If it is not held, Token is the largest that nodes have accepted, be it in an
// attempt that failed. Waiters are those of the node that knows most of them. The holder has no ID, because it has another at each node.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.State, error) {
	if err := d.begin(); err != nil {
		return driver.State{}, err
	}
	defer d.work.Done()
	for try := 1; ; try++ {
		state, split, err := d.survey(ctx, name)
		if !split || try == surveys || clock.Sleep(ctx, surveysApart) != nil {
			return state, err // how they voted says more than that there is no time for another vote
		}
	}
}

// survey asks all nodes once, and reports whether votes are split: a majority has answered, and does not agree.
func (d *Driver) survey(ctx context.Context, name string) (state driver.State, split bool, err error) {
	coming := query(ctx, d, d.nodes, func(ctx context.Context, n *node) (driver.State, error) { return n.inspect(ctx, name) })
	heard := make(survey, len(d.nodes))
	answered, quorum := 0, majority(len(d.nodes))
	for unheard := len(d.nodes) - 1; ; unheard-- {
		select {
		case a := <-coming:
			heard[a.i] = &a
			if a.err == nil {
				answered++
			}
		case <-ctx.Done():
			return driver.State{}, false, ctx.Err()
		}
		switch state, agreed := heard.verdict(); {
		case agreed >= quorum:
			return state, false, nil
		case agreed+unheard < quorum:
			return driver.State{}, answered >= quorum, d.disagreement(heard.vote)
		}
	}
}

func (n *node) inspect(ctx context.Context, name string) (driver.State, error) {
	inspector, ok := n.Node.(driver.Inspector)
	if !ok {
		return driver.State{}, fmt.Errorf("%w: a %T does not tell who holds a lock", driver.ErrUnsupported, n.Node)
	}
	return inspector.Inspect(ctx, name)
}

// survey is what each node says of one lock; nil: it has not answered.
type survey []*answer[driver.State]

// verdict returns what most nodes say, and how many say it. They say the same if the lock is held under the same token and
// metadata, or if it is not held.
func (s survey) verdict() (most driver.State, agreed int) {
	type view struct {
		held     bool
		metadata string
		token    uint64
	}
	said := map[view][]time.Duration{}
	waiters := map[view][]driver.Participant{}
	var last uint64
	for _, a := range s {
		if a == nil || a.err != nil {
			continue
		}
		v := view{held: a.value.Held}
		if v.held {
			v.metadata, v.token = a.value.Holder.Metadata, a.value.Token
		} else {
			last = max(last, a.value.Token)
		}
		said[v] = append(said[v], a.value.Left)
		if len(a.value.Waiters) > len(waiters[v]) {
			waiters[v] = a.value.Waiters
		}
	}
	for v, left := range said {
		if agreed < len(left) {
			agreed = len(left)
			slices.Sort(left)
			shortest := left[max(0, agreed-majority(len(s)))] // of the majority that has it longest
			most = driver.State{Held: v.held, Holder: driver.Participant{Metadata: v.metadata}, Left: shortest, Token: v.token, Waiters: waiters[v]}
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
	case a == nil:
		return errWaiting
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
