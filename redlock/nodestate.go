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
//	noLease ── onGrant ──▶ owned ── onReleased ──▶ released
//	noLease ── onJoin ──▶ joined ── onExtend ──▶ owned
//	                      joined ── onReleased ──▶ releasedJoined
//	noLease ── onWithdrawn ──▶ withdrawing ── onReleased ──▶ noLease
//
// and, by onGone, from each live state to noLease when the node answers that it has no such lease.
//
// The request axis (requestState) says which Propose or Release is in flight: at most one, because
// Propose needs a node without a lease, and Release one with a lease. Raises and Extends change no
// more than the lease axis.
//
// Invariants. (1) Only an owned node has had the lease since the hold was granted: joined
// nodes exclude others from now on, but another owner may have come and gone there before, so they
// count as a gap until an Extend that began later has succeeded with them. (2) A lease is
// forgotten only by an answer of its node; a request without an answer leaves it in place, to be
// released. (3) A queue position that is given up is released like a lease, but confirms no hold.
//
// Lost reply: the request is reported late once its time is up, which is a vote of absence. It
// stays in flight until the client library returns, and until then nothing else is sent. What a
// late Propose was granted is released if the claim is over, or joins the hold.

// leaseState is what a node keeps for a claim.
type leaseState uint8

const (
	noLease        leaseState = iota // or none that is known of
	owned                            // granted before the hold began, or confirmed by an Extend after it joined
	joined                           // granted during the hold
	withdrawing                      // in its queue, which is being given up
	released                         // it was mine, and its release is confirmed
	releasedJoined                   // it had joined, and its release is confirmed
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
	noLease:     {onGrant: owned, onJoin: joined, onWithdrawn: withdrawing},
	owned:       {onReleased: released, onGone: noLease},
	joined:      {onExtend: owned, onReleased: releasedJoined, onGone: noLease},
	withdrawing: {onReleased: noLease, onGone: noLease},
}

// requestState is the Propose or Release that is in flight.
type requestState uint8

const (
	idle         requestState = iota
	proposing                 // its reply is a vote in the ballot
	proposalLate              // still in flight after its time-out; the vote is absent
	releasing
	releaseLate // still in flight after its time-out
)

// nodeState is what a claim knows of one node. claim.mu guards it, and is held by the callers of
// its methods.
type nodeState struct {
	claim *claim
	i     int // which node

	lease          quorum.Candidate // that the node has, or may have; nil in noLease and the released states
	state          leaseState
	request        requestState
	err            error         // of the latest request
	backoff        time.Duration // before the latest retry of a release; it doubles
	retryScheduled bool          // a timer will retry the release

	place          quorum.Candidate // the claim's entry in the node's wait list, until it is granted or withdrawn; nil: none
	queued         bool             // the node has confirmed place
	wokenMeanwhile bool             // the node woke the claim while a proposal was in flight
	yielded        bool             // released for an earlier waiter, and the node has not reported one since

	proposal claimRequest // the latest; reused, because the one before has ended
	release  claimRequest
}

// transition applies an event, after which the node has lease l.
func (s *nodeState) transition(e leaseEvent, l quorum.Candidate) {
	if next, ok := leaseTransitions[s.state][e]; ok {
		s.state = next
	}
	s.lease = l
}

// awaitsReply reports whether a request is in flight whose time-out has not passed.
func (s *nodeState) awaitsReply() bool { return s.request == proposing || s.request == releasing }

func (s *nodeState) hasProposal() bool { return s.request == proposing || s.request == proposalLate }
func (s *nodeState) hasRelease() bool  { return s.request == releasing || s.request == releaseLate }

// busy reports whether the node has a lease of the claim, or a request in flight may give it one.
func (s *nodeState) busy() bool { return s.lease != nil || s.request != idle }

// releaseConfirmed reports whether the node had the lease, and has confirmed its release.
func (s *nodeState) releaseConfirmed() bool { return s.state == released || s.state == releasedJoined }

// hasGap reports whether the node is known not to have had the lease during the whole hold.
func (s *nodeState) hasGap() bool {
	return s.state != owned && s.state != released
}

// claimRequest is one request of a claim to a node.
type claimRequest struct {
	node    *nodeState
	what    action
	of      quorum.Candidate
	token   uint64
	queues  bool // of enters the node's wait list
	earlier bool // reply: the node has granted the lock to an earlier waiter, or keeps it for one
	sent    time.Time
}

type action uint8

const (
	toPropose action = iota // take the lease, under a token
	toRaise                 // raise the token of the lease
	toRelease               // release the lease, or the queue position
)

func (s *nodeState) call(r request) call { return call{node: s.claim.driver.nodes[s.i], request: r} }

func (r *claimRequest) send(ctx context.Context) (err error) {
	switch d := r.node.claim.driver; r.what {
	case toPropose:
		if err := d.identities.verify(ctx, d.nodes[r.node.i]); err != nil {
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
		s.onPropose(r, err, over)
	case toRaise:
		s.onRaise(r, err)
	case toRelease:
		s.onRelease(err, over)
	}
	c.onProgress()
}

// propose returns the call that proposes to the node: as the owner that is in its wait list, or as
// a fresh one: a candidate that does not wait proposes once (see quorum.Node).
func (s *nodeState) propose(token uint64) call {
	c := s.claim
	n := c.driver.nodes[s.i]
	s.request, s.err = proposing, nil
	if c.waiting != nil && s.place == nil && !c.decided {
		s.place = n.Candidate(c.req, c.waiting.place, func(kept bool) { c.onWake(s.i, kept) })
	}
	of := s.place
	if of == nil {
		of = n.Candidate(c.req, 0, nil)
	}
	s.proposal = claimRequest{node: s, of: of, token: token, queues: s.place != nil, sent: clock.Now()}
	return s.call(&s.proposal)
}

// onPropose records the reply to a proposal. over is false if only its time-out has passed: its
// outcome is unknown then, and the node's vote is absent. What a late reply brings belongs to the
// hold, or is released.
func (s *nodeState) onPropose(r *claimRequest, err error, over bool) {
	c := s.claim
	// A late reply to a proposal changes no vote; one to a raise does.
	if !c.decided && s.request == proposing {
		switch {
		case err == nil:
			c.ballot.grant(s.i, r.of.Token())
		case errors.Is(err, driver.ErrHeld):
			c.ballot.record(s.i, refused)
		default:
			c.ballot.record(s.i, absent)
		}
	}
	s.request, s.err = proposalLate, err
	if over {
		s.request = idle
	}
	if over && (!r.queues || err == nil || c.over) {
		s.place = nil
		switch known := r.of.Known(); {
		case known && r.queues && err != nil:
			s.transition(onWithdrawn, r.of)
		case known && c.decided:
			s.transition(onJoin, r.of)
		case known:
			s.transition(onGrant, r.of)
		}
	}
	switch {
	case over && c.over:
		c.send(s.startRelease(nil)...)
	case r.queues:
		c.waiting.onProposeReply(r, err, over)
	}
}

// onRaise records the reply to a raise, also a late one: the lease is there, and its Validity says
// for how long.
func (s *nodeState) onRaise(r *claimRequest, err error) {
	if s.lease != r.of || s.claim.over {
		return // the lease was released meanwhile, or is being released: that reply counts
	}
	s.err = err
	switch b := &s.claim.ballot; {
	case err == nil:
		b.grant(s.i, r.token)
	case errors.Is(err, driver.ErrUnsupported): // the token is too far ahead of the node's clock
		b.rejectGoal(s.i, r.token)
	case errors.Is(err, driver.ErrLost): // the lease has expired there, or the node has lost its data
		s.transition(onGone, nil)
		b.record(s.i, gone)
	default:
		b.record(s.i, absent)
	}
}

// startRelease adds the call that releases the node's lease, unless there is none, or a release is
// in flight.
func (s *nodeState) startRelease(calls []call) []call {
	if s.lease == nil || s.hasRelease() {
		return calls
	}
	s.request, s.err = releasing, nil
	s.release = claimRequest{node: s, what: toRelease, of: s.lease}
	return append(calls, s.call(&s.release))
}

// Bounds of the backoff between two releases to a node that fails.
const (
	minRetry = 20 * time.Millisecond
	maxRetry = time.Second
)

// onRelease records the reply to a release. Without a reply the node may still have the lease: the
// release is retried with a backoff, until the lease has expired.
func (s *nodeState) onRelease(err error, over bool) {
	s.request, s.err = releaseLate, err
	if over {
		s.request = idle
	}
	switch {
	case err == nil:
		s.transition(onReleased, nil)
		return
	case errors.Is(err, driver.ErrLost):
		s.transition(onGone, nil)
		return
	case !over, s.retryScheduled:
		return
	}
	c := s.claim
	s.backoff = min(max(2*s.backoff, minRetry), maxRetry)
	if clock.Now().Add(s.backoff).After(c.releaseBy) {
		return
	}
	s.retryScheduled = true
	time.AfterFunc(s.backoff, func() {
		if c.driver.begin() != nil {
			return
		}
		defer c.driver.work.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		s.retryScheduled = false
		c.send(s.startRelease(nil)...)
	})
}
