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

// Inspect implements [driver.Inspector]. It asks all nodes at once, and has its answer as soon as a majority says the same: that
// the lock is held under the same token and metadata, or that it is not held. Else the error, an [Error], tells how each node has answered.
// That is so while votes are split, and where a holder that has lost nodes since has it at others under larger tokens.
//
// Left is for how long a majority has the lock. If it is not held, Token is the largest that nodes have accepted, be it in an
// attempt that failed. There are no Waiters, because they poll, and each node knows the holder by an ID of its own.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.State, error) {
	if err := d.begin(); err != nil {
		return driver.State{}, err
	}
	defer d.work.Done()
	for try := 1; ; try++ {
		state, err := d.survey(ctx, name)
		if votes, ok := errors.AsType[*Error](err); !ok || !votes.split() || try == surveys {
			return state, err
		}
		if clock.Sleep(ctx, surveysApart) != nil {
			return state, err // how they voted says more than that there is no time for another vote
		}
	}
}

// split reports whether a majority has answered Inspect.
func (e *Error) split() bool {
	answers := 0
	for _, v := range e.Votes {
		if errors.Is(v.Err, driver.ErrHeld) || errors.Is(v.Err, driver.ErrNotHeld) {
			answers++
		}
	}
	return answers >= majority(len(e.Votes))
}

// survey asks all nodes once.
func (d *Driver) survey(ctx context.Context, name string) (driver.State, error) {
	coming := query(ctx, d, d.nodes, func(ctx context.Context, n *node) (driver.State, error) {
		inspector, ok := n.Proposer.(driver.Inspector)
		if !ok {
			return driver.State{}, fmt.Errorf("%w: a %T does not tell who holds a lock", driver.ErrUnsupported, n.Proposer)
		}
		return inspector.Inspect(ctx, name)
	})
	heard := make(survey, len(d.nodes))
	for {
		select {
		case a := <-coming:
			heard[a.i] = &a
		case <-ctx.Done():
			return driver.State{}, ctx.Err()
		}
		switch state, possible := heard.verdict(); {
		case state != nil:
			return *state, nil
		case !possible:
			return driver.State{}, d.disagreement(heard.vote)
		}
	}
}

// survey is what each node says of one lock; nil: it has not answered.
type survey []*answer[driver.State]

// verdict returns what a majority says, nil if none says the same, and whether one still can.
func (s survey) verdict() (state *driver.State, possible bool) {
	type holder struct {
		metadata string
		token    uint64
	}
	quorum := majority(len(s))
	unheard, free, most := 0, 0, 0
	var last uint64
	held := map[holder][]time.Duration{}
	for _, a := range s {
		switch {
		case a == nil:
			unheard++
		case a.err != nil:
		case !a.value.Held:
			free++
			last = max(last, a.value.Token)
		default:
			h := holder{a.value.Holder.Metadata, a.value.Token}
			held[h] = append(held[h], a.value.Left)
		}
	}
	if free >= quorum {
		return &driver.State{Token: last}, true
	}
	for h, left := range held {
		if len(left) >= quorum {
			slices.Sort(left)
			return &driver.State{
				Held: true, Holder: driver.Participant{Metadata: h.metadata}, Left: left[len(left)-quorum], Token: h.token,
			}, true
		}
		most = max(most, len(left))
	}
	return nil, max(free, most)+unheard >= quorum
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
