package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/workers"
)

// How a claim takes, keeps and releases the lock at a majority of the nodes.
//
//	identify  before its first vote each node reports its server: one server never has two votes
//	propose   to all nodes in parallel: take the lease, under at least this token
//	raise     one more round where the granted tokens differ: to the largest of them (see ballot)
//	extend    at every node with the lease; the others get a proposal, and join (see extension)
//	release   at every node that has or may have the lease, or a queue position
//
// Each step is one request to each node, and is decided by the replies of a majority. The fast path
// is two rounds of one script per node: propose, and release.
//
// Invariants. (1) A claim is granted when a majority has its lease under one token. (2) Its time
// counts from before the earliest proposal that counts. (3) A hold goes on only while a majority has had the
// lease all the time; nodes that joined count from the next Extend (see nodeState). (4) What a node
// grants after the claim is over is released: onReply is called for every request that ends,
// whether or not a caller still waits. (5) A node has at most one Propose or Release in flight.
//
// Lost reply: each request has a time-out, after which it is a vote of absence. Its outcome is
// unknown: the node is asked again under the same owner, or released until it answers or one TTL
// has passed. So an outage is never reported as another holder, and a release that too few nodes
// confirm is an error. The model is in docs/evidence/redlock-tokens.md, its simulation in
// simulation_test.go.

// claim is one attempt to take the lock, and the hold that it may become. Requests to nodes outlive
// the calls that made them: every reply is recorded here, whether or not a caller still waits. Its
// unexported methods are called with mu held, except abandon, wait and onWake, which lock it.
type claim struct {
	driver *backend
	req    driver.Request

	// owned by the goroutine that asks:
	asked    bool   // the first proposals have been sent
	finalErr error  // why a claim that does not wait was refused: it asks once
	token    uint64 // of the hold; 0: not granted. Set under mu, before Ask returns

	mu        sync.Mutex      // guards what follows, and each nodeState and waitState
	values    context.Context // of the latest call: requests carry its values, for tracing
	nodes     []nodeState
	ballot    ballot
	decided   bool       // the ballot is over: later grants join the hold, or are released
	until     time.Time  // by package clock: end of the hold, or of what an attempt may have left
	over      bool       // released or lost: whatever a node still grants is released
	releaseBy time.Time  // end of the retries of that: the leases have expired by then
	waiting   *waitState // nil: the claim does not wait
	waiters   []*waiter  // calls of Ask, Extend and Release in flight
}

// Claim implements [driver.Driver].
func (d *backend) Claim(req driver.Request) driver.Claim {
	c := d.newClaim(req)
	if req.Wake != nil {
		c.waiting = &waitState{claim: c}
	}
	return c
}

func (d *backend) newClaim(req driver.Request) *claim {
	c := &claim{driver: d, req: req, nodes: make([]nodeState, len(d.nodes)), ballot: newBallot(len(d.nodes))}
	for i := range c.nodes {
		c.nodes[i].claim, c.nodes[i].i = c, i
	}
	return c
}

// Ask implements [driver.Claim]. The first Ask proposes to all nodes. A claim that waits enters the
// wait list of every node at the same position, so that all nodes have the same first waiter, keep
// the lock for it after a release, and wake it. Replies are counted also between two Asks: a grant
// by a majority wakes the caller, whose next Ask returns it.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	d := c.driver
	if err := d.CheckTTL(c.req.TTL); err != nil {
		return 0, err
	}
	if c.req.Shared {
		return 0, fmt.Errorf("%w: Redlock has no read-write locks", driver.ErrUnsupported)
	}
	if err := d.begin(); err != nil {
		return 0, err
	}
	defer d.work.Done()
	if c.finalErr != nil {
		return 0, c.finalErr
	}
	if !c.asked {
		if err := d.identify(ctx, c.req.TTL); err != nil {
			return 0, err
		}
	}
	w := &waiter{decide: c.decideAcquire}
	c.mu.Lock()
	c.values = ctx
	switch {
	case !c.asked:
		// The TTL counts from before the first proposal is sent.
		c.asked, c.until = true, clock.Now().Add(c.req.TTL)
		if c.waiting != nil {
			c.waiting.place = d.nextPlace()
		}
		c.propose(func(int) bool { return true })
	case c.waiting != nil:
		c.waiting.pollNodes()
	}
	c.await(w)
	c.mu.Unlock()
	err = c.wait(ctx, w)
	if c.waiting != nil {
		return c.waiting.pollInterval(), err
	}
	if err != nil {
		c.finalErr = err
		c.abandon(ctx)
	}
	return 0, err
}

// propose sends a proposal to those of some nodes that have not granted the lock, and have no
// proposal in flight. The token is that of the hold; during the ballot it is the largest that a
// node has accepted, so that no raise is needed to reach it, or else the proposer's clock.
func (c *claim) propose(some func(i int) bool) {
	token := cmp.Or(c.token, c.ballot.largest(), uint64(max(c.driver.clock().UnixMicro(), 1)))
	calls := make([]call, 0, len(c.nodes))
	for i := range c.nodes {
		s := &c.nodes[i]
		if s.lease != nil || s.hasProposal() || !some(i) {
			continue
		}
		if !c.decided {
			c.ballot.record(i, asked)
		}
		calls = append(calls, s.propose(token))
	}
	c.send(calls...)
}

// decideAcquire reports whether the outcome of the attempt is known, and its error.
func (c *claim) decideAcquire() (known bool, err error) {
	outcome := c.ballot.outcome()
	switch {
	case c.token > 0: // granted between two Asks
		return true, nil
	case outcome == won:
		c.commit()
		return true, nil
	case outcome == undecided:
		return false, nil
	case outcome == denied && c.waiting != nil:
		return true, driver.ErrHeld
	}
	c.decided = c.waiting == nil
	failed := c.driver.disagreement(c.vote) // a waiter's ballot stays open: the core bounds an outage
	failed.held = outcome == denied
	return true, failed
}

// commit turns a won ballot into a hold.
func (c *claim) commit() {
	c.decided, c.token = true, c.ballot.goal
	left := c.req.TTL
	for i := range c.nodes {
		s := &c.nodes[i]
		if c.ballot.agrees(i) {
			left = min(left, s.lease.Validity()) // a request that arrived late was granted the rest of its TTL
		}
	}
	c.until = clock.Now().Add(left)
}

// vote returns the vote of node i in an attempt that has failed, or in a release.
func (c *claim) vote(i int) error {
	switch s := &c.nodes[i]; {
	case c.over && !s.busy() && !s.releaseConfirmed():
		return errAbsent
	case s.err == nil && s.request != idle:
		return errWaiting
	case s.err == nil && !c.over && s.lease == nil:
		return errGivenBack
	default:
		return s.err
	}
}

// Token implements [driver.Claim].
func (c *claim) Token() uint64 { return c.token }

// Validity implements [driver.Claim].
func (c *claim) Validity() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until.Sub(clock.Now())
}

// Release implements [driver.Claim]. A hold is released when a majority has confirmed it; a failed
// attempt, when no node may have anything of it. Releases to the other nodes are retried in the
// background until they answer, or the leases have expired.
func (c *claim) Release(ctx context.Context) error {
	if !c.asked {
		return nil
	}
	if err := c.driver.begin(); err != nil {
		return err
	}
	defer c.driver.work.Done()
	c.abandon(ctx)
	w := &waiter{decide: c.decideRelease}
	c.mu.Lock()
	c.await(w)
	c.mu.Unlock()
	return c.wait(ctx, w)
}

// abandon ends the attempt or the hold, and releases it at every node, including later grants.
func (c *claim) abandon(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = ctx
	if c.token == 0 {
		c.decided = true
		if c.waiting != nil {
			c.until = clock.Now().Add(c.req.TTL) // a node may have granted its latest proposal just now
		}
	}
	c.releaseAll()
}

// releaseAll marks the claim as over, and starts a release at every node that has a lease or a
// queue position. A node with a proposal in flight follows when that ends (see onPropose).
// Idempotent.
func (c *claim) releaseAll() {
	if !c.over {
		c.over, c.releaseBy = true, clock.Now().Add(c.req.TTL)
	}
	calls := make([]call, 0, len(c.nodes))
	for i := range c.nodes {
		s := &c.nodes[i]
		if s.place != nil && !s.hasProposal() && s.place.Known() {
			s.transition(onWithdrawn, s.place)
			s.place = nil
		}
		calls = s.startRelease(calls)
	}
	c.send(calls...)
}

// decideRelease reports whether the outcome of the release is known, and its error.
func (c *claim) decideRelease() (known bool, err error) {
	t, busy := tally{nodes: len(c.nodes)}, false
	for i := range c.nodes {
		s := &c.nodes[i]
		t.add(s.releaseConfirmed(), s.awaitsReply(), s.hasGap())
		busy = busy || s.busy()
	}
	switch hold := c.token != 0; {
	case hold && t.lost():
		return true, driver.ErrLost
	case hold && t.succeeded(), !hold && !busy:
		return true, nil
	case t.pending > 0:
		return false, nil
	default:
		return true, c.driver.disagreement(c.vote)
	}
}

// onWake is called when node i wakes the waiter, and proposes to it again. If that node keeps the
// lock for the waiter, the others do so too, or are about to: then it proposes to all. It does not
// block: the hub of a client library calls it.
func (c *claim) onWake(i int, kept bool) {
	d := c.driver
	if d.begin() != nil {
		return
	}
	d.workers.Do(workers.Func(func() {
		defer d.work.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case c.over:
		case c.decided && !clock.Now().Before(c.until): // an expired hold that nobody has released
			c.releaseAll()
		default:
			c.nodes[i].wokenMeanwhile = c.nodes[i].hasProposal()
			all := kept && c.ballot.leases() == 0
			c.propose(func(k int) bool { return all || k == i })
		}
	}))
}

// send sends requests as one round. No reply is recorded before mu is released.
func (c *claim) send(calls ...call) {
	c.driver.send(c.values, c.driver.nodeTimeout(c.req.TTL), calls)
}

// waiter is a call that waits for the outcome of a round.
type waiter struct {
	decide func() (known bool, err error) // called with claim.mu held after each reply, until known
	err    error
	done   chan struct{} // closed when err is set
}

// resolve ends the wait if the outcome is known, and reports whether it is.
func (w *waiter) resolve() bool {
	known, err := w.decide()
	if known {
		w.err = err
		close(w.done)
	}
	return known
}

// await registers w, unless its outcome is known already.
func (c *claim) await(w *waiter) {
	w.done = make(chan struct{})
	if !w.resolve() {
		c.waiters = append(c.waiters, w)
	}
}

// wait returns w's error, or ctx's if that ends first: then w is not decided any more.
func (c *claim) wait(ctx context.Context, w *waiter) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.waiters, w); i >= 0 {
		c.waiters = slices.Delete(c.waiters, i, i+1)
		return ctx.Err()
	}
	return w.err
}

// onProgress is called after each reply. It starts the raises that are due, wakes a caller that is
// not asking now, and resolves the calls whose outcome the reply has decided.
func (c *claim) onProgress() {
	if !c.decided {
		var calls []call
		for _, i := range c.ballot.raise() {
			s := &c.nodes[i]
			calls = append(calls, s.call(&claimRequest{node: s, what: toRaise, of: s.lease, token: c.ballot.goal}))
		}
		c.send(calls...)
	}
	if c.waiting != nil && len(c.waiters) == 0 {
		c.waiting.wakeCaller()
	}
	c.waiters = slices.DeleteFunc(c.waiters, (*waiter).resolve)
}
