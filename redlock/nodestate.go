package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/quorum"
)

// A claim's view of one node has two axes, and a queue position beside them.
//
// The lease axis (leaseState) says what the node keeps for the claim. It moves by leaseTransitions:
//
//	nothing ── granted ──▶ mine ── released ──▶ freed
//	nothing ── joined ──▶ joined ── extended ──▶ mine
//	                      joined ── released ──▶ freedJoined
//	nothing ── withdrawn ──▶ position ── released ──▶ nothing
//
// and from each of the live states to nothing when the node answers that it has no such lease.
//
// The request axis (requestState) says which Propose or Release is in flight: at most one, because
// Propose needs a node without a lease, and Release one with a lease. Raises and Extends change no
// more than the lease axis.
//
// Invariants. (1) Only a node that is mine has had the lease since the hold was granted: joined
// nodes exclude others from now on, but another owner may have come and gone there before, so they
// count as "without" until an Extend that began later has succeeded with them. (2) A lease is
// forgotten only by an answer of its node; a request without an answer leaves it in place, to be
// released. (3) A queue position that is given up is released like a lease, but confirms no hold.
//
// Lost reply: the request is reported late once its time is up, which is a vote of absence. It
// stays in flight until the client library returns, and until then nothing else is sent. What a
// late Propose was granted is released if the claim is over, or joins the hold.

// leaseState is what a node keeps for a claim.
type leaseState uint8

const (
	nothing     leaseState = iota // or nothing that is known of
	mine                          // granted before the hold began, or confirmed by an Extend since it joined
	joined                        // granted during the hold
	position                      // in its queue, which is being given up
	freed                         // it was mine, and its release is confirmed
	freedJoined                   // it had joined, and its release is confirmed
)

// leaseEvent is an answer of a node that moves its leaseState, or the claim's own decision.
type leaseEvent uint8

const (
	onGrant     leaseEvent = iota // to an attempt
	onJoin                        // a grant to a hold
	onExtend                      // an Extend that began after the grant has succeeded
	onWithdrawn                   // the claim gives up its queue position
	onReleased                    // confirmed by the node
	onGone                        // the node has no such lease, or it was moved to another claim
)

// leaseTransitions has a row for each state. An event without an entry leaves the state as it is.
var leaseTransitions = map[leaseState]map[leaseEvent]leaseState{
	// Released: a Raise that the release overtook has found nothing.
	nothing:  {onGrant: mine, onJoin: joined, onWithdrawn: position, onReleased: freed},
	mine:     {onReleased: freed, onGone: nothing},
	joined:   {onExtend: mine, onReleased: freedJoined, onGone: nothing},
	position: {onReleased: nothing, onGone: nothing},
}

// requestState is the Propose or Release that is in flight.
type requestState uint8

const (
	idle         requestState = iota
	proposing                 // and its answer counts for the ballot
	proposalLate              // in flight after its time-out
	releasing
	releaseLate // in flight after its time-out
)

// nodeState is what a claim knows of one node. claim.mu guards it.
type nodeState struct {
	claim *claim
	i     int // which node

	lease   quorum.Candidate // that the node has, or may have; nil in the states nothing and freed
	state   leaseState
	request requestState
	err     error         // of the latest request
	backoff time.Duration // before the latest retry of a release
	retries bool          // a timer will release it again

	place   quorum.Candidate // in the node's queue, of a claim that waits or a hold that has waited; nil: there is none, or it was granted
	queued  bool             // the node has confirmed place
	woken   bool             // by the node, while it was asked
	yielded bool             // it was given back to an earlier waiter, and the node has not named one since

	proposal claimRequest // the latest, and so of the one below
	release  claimRequest
}

// on moves the state of the lease, which l is from then on.
func (s *nodeState) on(e leaseEvent, l quorum.Candidate) {
	if next, ok := leaseTransitions[s.state][e]; ok {
		s.state = next
	}
	s.lease = l
}

// waits reports whether the node may answer any moment.
func (s *nodeState) waits() bool { return s.request == proposing || s.request == releasing }

func (s *nodeState) asked() bool { return s.request == proposing || s.request == proposalLate }
func (s *nodeState) frees() bool { return s.request == releasing || s.request == releaseLate }

// busy reports whether the node has something of ours, or a request is in flight that may change
// that.
func (s *nodeState) busy() bool { return s.lease != nil || s.request != idle }

// confirmed reports whether the node had the lease, and has confirmed its release.
func (s *nodeState) confirmed() bool { return s.state == freed || s.state == freedJoined }

// without reports whether the node is known not to have had the lease for all of the hold.
func (s *nodeState) without() bool {
	return s.state == joined || s.state == freedJoined || s.state == position || s.state == nothing && !s.frees()
}

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
	s.request, s.err = proposing, nil
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
	if !c.decided && s.request == proposing { // a late one is absent already
		switch {
		case err == nil:
			c.ballot.granted(s.i, r.of.Token())
		case errors.Is(err, driver.ErrHeld):
			c.ballot.says(s.i, refused)
		default:
			c.ballot.says(s.i, absent)
		}
	}
	s.request, s.err = proposalLate, err
	if over {
		s.request = idle
	}
	if over && (!r.waits || err == nil || c.over) {
		s.place = nil
		switch known := r.of.Known(); {
		case known && r.waits && err != nil:
			s.on(onWithdrawn, r.of)
		case known && c.decided:
			s.on(onJoin, r.of)
		case known:
			s.on(onGrant, r.of)
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
		s.on(onGone, nil)
		b.says(s.i, gone)
	default:
		b.says(s.i, absent)
	}
}

// free adds the call that releases what the node has, unless it has nothing, or one is under way.
func (s *nodeState) free(calls []call) []call {
	if s.lease == nil || s.frees() {
		return calls
	}
	s.request, s.err = releasing, nil
	s.release = claimRequest{node: s, what: toRelease, of: s.lease}
	return append(calls, s.call(&s.release))
}

// released takes in the answer to a release.
func (s *nodeState) released(err error, over bool) {
	s.request, s.err = releaseLate, err
	if over {
		s.request = idle
	}
	switch {
	case err == nil:
		s.on(onReleased, nil)
	case errors.Is(err, driver.ErrLost):
		s.on(onGone, nil)
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
	if s.retries {
		return
	}
	s.backoff = min(max(2*s.backoff, shortPause), longPause)
	if clock.Now().Add(s.backoff).After(c.freeBy) {
		return
	}
	s.retries = true
	time.AfterFunc(s.backoff, func() {
		if c.driver.begin() != nil {
			return
		}
		defer c.driver.work.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		s.retries = false
		c.send(s.free(nil)...)
	})
}
