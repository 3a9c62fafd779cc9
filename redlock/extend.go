package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/quorum"
)

// How a hold is extended.
//
//	extend  at each node that has the lease, many leases in one request where the node can
//	raise   after that, where the node's token is smaller than the hold's, or unknown
//	join    nodes without the lease get a proposal under the hold's token, or a larger one of theirs
//
// An Extend succeeds when a majority has the lease for a TTL from when it was sent, and a majority
// is known to have had it without a gap. Joined nodes exclude others from now on, but count against
// a gap only from the next Extend: before they granted, another owner may have come and gone there.
//
// Invariants. (1) The deadline only moves forward, and counts from before the requests were sent.
// (2) A success that comes after the deadline is a loss. (3) A joined node's token is no smaller
// than the hold's, so the next holder, which shares a node with any majority, gets a larger one.
//
// Lost reply: the node may have extended the lease, which harms nobody: it expires, or is released.
// Without a majority the old deadline stays, and the core sends the next renewal.

// Extend implements [driver.Claim].
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	return c.driver.ExtendAll(ctx, []driver.Claim{c}, ttl)[0]
}

// ExtendAll implements [driver.BatchExtender]. It costs one round trip to each node.
func (d *backend) ExtendAll(ctx context.Context, leases []driver.Claim, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	if err := d.begin(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer d.work.Done()
	all := make([]*extension, len(leases))
	sent := clock.Now()
	calls := make([]call, 0, len(d.nodes))
	for k, l := range leases {
		all[k] = &extension{claim: l.(*claim), sent: sent, ttl: ttl, nodes: make([]nodeExtension, len(d.nodes))}
		calls = all[k].start(ctx, calls)
	}
	for i, n := range d.nodes {
		targets := make([]target, 0, len(all))
		for _, e := range all {
			if of := e.nodes[i].of; of != nil {
				targets = append(targets, target{e, of})
			}
		}
		for some := range slices.Chunk(targets, maxBatch) {
			calls = append(calls, call{node: n, request: &extendRequest{node: n, i: i, targets: some}})
		}
	}
	d.send(ctx, d.nodeTimeout(ttl), calls)
	for k, e := range all {
		errs[k] = e.claim.wait(ctx, &e.waiter)
	}
	return errs
}

// extension is one Extend of one claim. claim.mu guards it.
type extension struct {
	waiter
	claim *claim
	sent  time.Time
	ttl   time.Duration
	nodes []nodeExtension
	done  bool // it has succeeded; replies of other nodes may follow
}

// nodeExtension is the vote of one node on an extension.
type nodeExtension struct {
	of     quorum.Candidate // the lease when the Extend began; nil: none
	vote   error            // nil: the node has the lease for a TTL from sent, or longer
	hadGap bool             // the node did not have the lease during the whole hold when the Extend began
}

// start decides which nodes are to extend, and which are to join, and adds the proposals for these.
// An expired hold sends nothing.
func (e *extension) start(ctx context.Context, calls []call) []call {
	c := e.claim
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = ctx
	over := c.over || !e.sent.Before(c.until)
	for i := range c.nodes {
		s, x := &c.nodes[i], &e.nodes[i]
		switch {
		case over:
			x.vote = errAbsent
		case s.lease != nil:
			x.of, x.vote = s.lease, errWaiting
		default:
			x.vote = errJoining
			if !s.hasProposal() {
				calls = append(calls, s.propose(c.token))
			}
		}
		x.hadGap = s.hasGap()
	}
	e.decide = e.decideExtend
	c.await(&e.waiter)
	return calls
}

// decideExtend reports whether the outcome is known: a majority has extended, or the hold is lost,
// or too many nodes have failed. The caller holds claim.mu.
func (e *extension) decideExtend() (known bool, err error) {
	c := e.claim
	t := tally{nodes: len(e.nodes)}
	for i := range e.nodes {
		x := &e.nodes[i]
		if x.vote == errJoining { //nolint:errorlint // never wrapped
			x.vote = e.joinVote(&c.nodes[i])
		}
		lost := errors.Is(x.vote, driver.ErrLost) || x.vote == errAbsent //nolint:errorlint // never wrapped
		waits := x.vote == errWaiting || x.vote == errJoining            //nolint:errorlint // never wrapped
		t.add(x.vote == nil, waits, x.hadGap || lost)
	}
	switch {
	case c.over, t.lost(), t.agreed >= majority(t.nodes) && !clock.Now().Before(c.until):
		// A majority had a gap, or has answered after the deadline: another owner may have held the
		// lock.
		c.releaseAll()
		return true, driver.ErrLost
	case t.succeeded(): // joined nodes are part of the majority, but only once a loss is excluded
		if until := e.sent.Add(e.ttl); until.After(c.until) {
			c.until = until
		}
		e.done = true
		for i := range e.nodes {
			e.confirmNode(i)
		}
		return true, nil
	case t.agreed+t.pending >= majority(t.nodes), t.mayBeLost():
		return false, nil
	default:
		return true, c.driver.disagreement(func(i int) error { return e.nodes[i].vote })
	}
}

// joinVote returns the vote of a node that got a proposal. A lease that it granted to an earlier
// proposal ends before a TTL from now, and is extended. The caller holds claim.mu.
func (e *extension) joinVote(s *nodeState) error {
	c := e.claim
	switch {
	case s.request == proposing:
		return errJoining
	case c.over, errors.Is(s.err, driver.ErrHeld):
		return errAbsent
	case s.err != nil:
		return s.err
	case s.lease == nil:
		return driver.ErrLost // granted, and then reported as gone to another Extend
	case s.lease.Token() >= c.token && !clock.Now().Add(s.lease.Validity()).Before(e.sent.Add(e.ttl)):
		return nil
	default:
		n := c.driver.nodes[s.i]
		c.send(call{node: n, request: &extendRequest{node: n, i: s.i, targets: []target{{e, s.lease}}}})
		return errWaiting
	}
}

// confirmNode applies node i's vote to a successful Extend: a joined node that has extended is
// owned from now on, and one that has lost the lease gets a proposal. The caller holds claim.mu.
func (e *extension) confirmNode(i int) {
	c, x := e.claim, &e.nodes[i]
	switch s := &c.nodes[i]; {
	case x.vote == nil && x.of != nil && x.of == s.lease:
		s.transition(onExtend, s.lease)
	case errors.Is(x.vote, driver.ErrLost) && !s.busy() && !c.over && clock.Now().Before(c.until):
		c.send(s.propose(c.token))
	}
}

// maxBatch bounds the leases that one request extends: they share its time-out.
const maxBatch = 1024

// target is the lease of one extension at one node.
type target struct {
	*extension
	of quorum.Candidate // there
}

// extendRequest extends some leases at node i.
type extendRequest struct {
	node    *node
	i       int
	targets []target
	errs    []error // of each, once send has returned
}

var errNotRaised = errors.New("has accepted a larger token")

// send extends the leases. It raises a token that is smaller than the hold's, or unknown because
// the reply to the proposal was lost.
func (r *extendRequest) send(ctx context.Context) error {
	leases := make([]driver.Claim, len(r.targets))
	for k, t := range r.targets {
		leases[k] = t.of
	}
	errs := r.node.ExtendAll(ctx, leases, r.targets[0].ttl)
	for k, t := range r.targets {
		if errs[k] != nil || t.of.Token() >= t.claim.token {
			continue
		}
		if errs[k] = t.of.Raise(ctx, t.claim.token); errors.Is(errs[k], driver.ErrLost) {
			errs[k] = errNotRaised // the lease was there a moment ago
		}
	}
	r.errs = errs
	return errs[0] // also counted for the health of the node
}

func (r *extendRequest) onReply(err error, over bool) {
	for k, t := range r.targets {
		if over && r.errs != nil {
			err = asNoAnswer(r.errs[k], t.claim.driver.nodeTimeout(t.ttl))
		}
		t.onReply(r.i, err)
	}
}

// onReply records the vote of node i.
func (t target) onReply(i int, err error) {
	c := t.claim
	c.mu.Lock()
	defer c.mu.Unlock()
	t.nodes[i].vote = err
	if s := &c.nodes[i]; errors.Is(err, driver.ErrLost) && s.lease == t.of && !c.over {
		s.transition(onGone, nil)
	}
	if t.done {
		t.confirmNode(i)
	}
	c.onProgress()
}
