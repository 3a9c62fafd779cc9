package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/quorum"
)

// nodeState is what a claim knows of one node. claim.mu guards it.
type nodeState struct {
	claim *claim
	i     int // which node

	lease   quorum.Candidate // that is ours there, or may be; nil if nothing is
	asking  bool             // a Propose is under way
	freeing bool             // a Release is under way
	late    bool             // and has not been answered in time
	freed   bool             // the node had it, and has confirmed its release
	joined  bool             // it grants during the hold, and no Extend has begun after that and succeeded with it
	err     error            // of the latest request
	pausing bool             // a timer will free it again
	pause   time.Duration    // how long, the last time

	place   quorum.Candidate // in the node's queue, of a claim that waits or a hold that has waited; nil: there is none, or it was granted
	queued  bool             // the node has confirmed it
	again   bool             // the node has woken it while it was asked
	yielded bool             // it was given back to an earlier waiter, and the node has not named one since
	unmet   bool             // lease is a place that was not granted

	proposal claimRequest // the latest, and so of the one below
	release  claimRequest
}

// waits reports whether the node may answer any moment.
func (s *nodeState) waits() bool { return (s.asking || s.freeing) && !s.late }

// busy reports whether the node has something of ours, or a request is under way that may change
// that.
func (s *nodeState) busy() bool { return s.lease != nil || s.asking || s.freeing }

// claimRequest is what a node is asked for a claim.
type claimRequest struct {
	node    *nodeState
	what    action
	of      quorum.Candidate
	token   uint64
	waits   bool // of has a place in the node's queue, or will
	earlier bool // the node has the lock for an earlier waiter
	sent    time.Time
}

type action uint8

const (
	toPropose action = iota // grant the lock
	toRaise                 // accept a larger token
	toRelease               // give back what it has
)

func (s *nodeState) call(r request) call { return call{node: s.claim.driver.nodes[s.i], request: r} }

func (r *claimRequest) send(ctx context.Context) (err error) {
	switch d := r.node.claim.driver; r.what {
	case toPropose:
		if err := d.identities.meet(ctx, d.nodes[r.node.i]); err != nil {
			return err
		}
		r.earlier, err = r.of.Propose(ctx, r.token)
		return err
	case toRaise:
		return r.of.Raise(ctx, r.token)
	default:
		return r.of.Release(ctx)
	}
}

func (r *claimRequest) onReply(err error, over bool) {
	s := r.node
	c := s.claim
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.what {
	case toPropose:
		s.proposed(r, err, over)
	case toRaise:
		s.raised(r, err)
	case toRelease:
		s.released(err, over)
	}
	c.changed()
}

// propose returns the call that asks the node for the lock: with a fresh owner, or from the place
// that it has there. The caller holds claim.mu, as of all that follows.
func (s *nodeState) propose(token uint64) call {
	c := s.claim
	n := c.driver.nodes[s.i]
	s.asking, s.late, s.err, s.joined = true, false, nil, c.decided
	if c.waiting != nil && s.place == nil && !c.decided {
		s.place = n.Candidate(c.req, c.waiting.place, func(kept bool) { c.woken(s.i, kept) })
	}
	of := s.place
	if of == nil {
		of = n.Candidate(c.req, 0, nil)
	}
	s.proposal = claimRequest{node: s, of: of, token: token, waits: s.place != nil, sent: clock.Now()} // of the one before nothing is under way
	return s.call(&s.proposal)
}

// proposed takes in the answer to a proposal.
func (s *nodeState) proposed(r *claimRequest, err error, over bool) {
	c := s.claim
	if !c.decided && !s.late { // else it is absent already
		switch {
		case err == nil:
			c.ballot.granted(s.i, r.of.Token())
		case errors.Is(err, driver.ErrHeld):
			c.ballot.says(s.i, refused)
		default:
			c.ballot.says(s.i, absent)
		}
	}
	s.late, s.err, s.asking = !over, err, !over
	if over && (!r.waits || err == nil || c.over) {
		s.place = nil
		if r.of.Known() {
			s.lease, s.unmet = r.of, r.waits && err != nil
		}
	}
	switch {
	case over && c.over:
		c.send(s.free(nil)...)
	case r.waits:
		c.waiting.answered(r, err, over)
	}
}

// raised takes in the answer to a raise.
func (s *nodeState) raised(r *claimRequest, err error) {
	if s.lease != r.of {
		return // it was given back
	}
	s.err = err
	switch b := &s.claim.ballot; {
	case err == nil:
		b.granted(s.i, r.token)
	case errors.Is(err, driver.ErrUnsupported): // the goal is too far ahead of the node's clock
		b.refusedGoal(s.i, r.token)
	case errors.Is(err, driver.ErrLost): // the node does not have what it had granted
		s.lease = nil
		b.says(s.i, gone)
	default:
		b.says(s.i, absent)
	}
}

// free adds the call that releases what the node has, unless it has nothing, or one is under way.
func (s *nodeState) free(calls []call) []call {
	if s.lease == nil || s.freeing {
		return calls
	}
	s.freeing, s.late, s.err = true, false, nil
	s.release = claimRequest{node: s, what: toRelease, of: s.lease}
	return append(calls, s.call(&s.release))
}

// released takes in the answer to a release.
func (s *nodeState) released(err error, over bool) {
	s.freeing, s.late, s.err = !over, !over, err
	switch {
	case err == nil:
		s.lease, s.freed = nil, !s.unmet
	case errors.Is(err, driver.ErrLost):
		s.lease = nil
	case over:
		s.freeLater()
	}
}

// Pauses between two releases to a node that fails.
const (
	shortPause = 20 * time.Millisecond
	longPause  = time.Second
)

// freeLater tries again after a pause, for as long as the node may have the lock.
func (s *nodeState) freeLater() {
	c := s.claim
	if s.pausing {
		return
	}
	s.pause = min(max(2*s.pause, shortPause), longPause)
	if clock.Now().Add(s.pause).After(c.freeBy) {
		return
	}
	s.pausing = true
	time.AfterFunc(s.pause, func() {
		if c.driver.begin() != nil {
			return
		}
		defer c.driver.work.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		s.pausing = false
		c.send(s.free(nil)...)
	})
}
