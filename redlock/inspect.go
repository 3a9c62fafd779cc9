package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
// the lock is held under the same token and metadata, or that it is not held. Else the error, an [Error], says how each node has answered.
// That is so while votes are split, and where a holder that has lost nodes since has it at others under larger tokens.
//
// Left is for how long a majority has the lock. If it is not held, Token is the largest that nodes have accepted, be it in an
// attempt that failed. There are no Waiters, for they poll, and each node knows the holder by an ID of its own.
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

// split says whether a majority has answered Inspect.
func (e *Error) split() bool {
	answers := 0
	for _, v := range e.Votes {
		if errors.Is(v.Err, driver.ErrHeld) || errors.Is(v.Err, driver.ErrNotHeld) {
			answers++
		}
	}
	return answers >= majority(len(e.Votes))
}

// surveyTimeout leaves enough of ctx to say how the nodes have answered.
func surveyTimeout(ctx context.Context, timeout time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/3)
	}
	return timeout
}

// survey asks all nodes once.
func (d *Driver) survey(ctx context.Context, name string) (driver.State, error) {
	s := &survey{driver: d, name: name, answers: make([]nodeState, len(d.nodes)), over: make(chan struct{})}
	r := d.round(ctx, surveyTimeout(ctx, cmp.Or(d.timeout, longestTimeout)))
	for i, n := range d.nodes {
		r.call(n, &inspectMessage{survey: s, i: i})
	}
	r.sent()
	select {
	case <-s.over:
		return s.state, s.err
	case <-ctx.Done():
		return driver.State{}, ctx.Err()
	}
}

// survey is what the nodes say of one lock.
type survey struct {
	driver *Driver
	name   string

	mu      sync.Mutex
	answers []nodeState

	over  chan struct{} // closed when what follows is set
	state driver.State
	err   error
}

// nodeState is what one node says.
type nodeState struct {
	heard bool
	state driver.State
	err   error
}

// inspectMessage asks node i.
type inspectMessage struct {
	survey *survey
	i      int
	state  driver.State
}

func (m *inspectMessage) send(ctx context.Context) (err error) {
	node := m.survey.driver.nodes[m.i].Proposer
	inspector, ok := node.(driver.Inspector)
	if !ok {
		return fmt.Errorf("%w: a %T does not tell who holds a lock", driver.ErrUnsupported, node)
	}
	m.state, err = inspector.Inspect(ctx, m.survey.name)
	return err
}

func (m *inspectMessage) missed(err error)   { m.survey.hear(m.i, nodeState{true, driver.State{}, err}) }
func (m *inspectMessage) answered(err error) { m.survey.hear(m.i, nodeState{true, m.state, err}) }

// hear takes in what node i says, unless that comes too late.
func (s *survey) hear(i int, answer nodeState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.over:
		return
	default:
	}
	if s.answers[i].heard {
		return
	}
	s.answers[i] = answer
	state, possible := verdict(s.answers)
	switch {
	case state != nil:
		s.state = *state
	case possible:
		return
	default:
		s.err = &Error{Votes: s.votes()}
	}
	close(s.over)
}

// verdict is what a majority says, nil if none says the same, and whether one still can.
func verdict(answers []nodeState) (state *driver.State, possible bool) {
	type holder struct {
		metadata string
		token    uint64
	}
	quorum := majority(len(answers))
	unheard, free, most := 0, 0, 0
	var last uint64
	held := map[holder][]time.Duration{}
	for _, a := range answers {
		switch {
		case !a.heard:
			unheard++
		case a.err != nil:
		case !a.state.Held:
			free++
			last = max(last, a.state.Token)
		default:
			h := holder{a.state.Holder.Metadata, a.state.Token}
			held[h] = append(held[h], a.state.Left)
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

// votes is what each node has said. The caller holds s.mu.
func (s *survey) votes() []Vote {
	votes := make([]Vote, len(s.answers))
	for i, a := range s.answers {
		votes[i] = Vote{s.driver.nodes[i].name, a.err}
		switch {
		case !a.heard:
			votes[i].Err = errWaiting
		case a.err != nil:
		case a.state.Held:
			votes[i].Err = heldUnder(a.state.Token)
		default:
			votes[i].Err = driver.ErrNotHeld
		}
	}
	return votes
}
