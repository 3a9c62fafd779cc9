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

// How a claim takes, keeps and gives back the lock at a majority of the nodes.
//
//	identify  each node says who it is, before its first vote: two votes of one server are refused
//	propose   to all nodes at once: take the lease, under at least this token
//	raise     where the granted tokens differ: once, to the largest of them (see ballot)
//	extend    every node with the lease; nodes without it are proposed to, and join the hold
//	release   every node that has or may have the lease, or a queue position
//
// Invariants. (1) A claim is granted when a majority has its lease under one token. (2) Its time
// counts from before the first proposal. (3) A hold goes on only while a majority has had the
// lease all the time; nodes that joined count from the next Extend (see nodeState). (4) What a node
// grants after the claim is over is released: onReply is called for every request that ends,
// whether or not a caller still waits. (5) A node has at most one Propose or Release in flight.
//
// Lost reply: each request has a time-out, after which it is a vote of absence. Its outcome is
// unknown: the node is asked again under the same owner, or released until it answers or one TTL
// has passed. So an outage is never reported as another holder, and a release that too few nodes
// confirm is an error. The model is in docs/evidence/redlock-tokens.md, its simulation in
// simulation_test.go.

// claim is one attempt to take the lock, and the hold that it may become. Requests to the nodes
// outlive the calls that made them, and every reply is recorded here.
type claim struct {
	driver *backend
	req    driver.Request
	asked  bool   // all nodes have been asked
	failed error  // why a claim that does not wait was not granted: it asks once
	token  uint64 // that a majority has accepted; 0: the lock is not granted; set before Ask returns

	mu      sync.Mutex
	values  context.Context // of the latest call, for those who trace requests
	nodes   []nodeState
	ballot  ballot
	decided bool       // the ballot is over
	until   time.Time  // by package clock: until when the lock is held, or may be
	over    bool       // released or lost: what a node still grants is given back
	freeBy  time.Time  // until when that is tried
	waiting *waitState // nil: it does not wait
	calls   []*pending // under way
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

// Ask asks all nodes for the lock. One that waits stands in the queue of every node, in the same
// place: so all nodes have the same first waiter, keep the lock for it after a release, and wake
// it. It has the lock when a majority has granted it. What nodes say comes in also while nobody
// asks.
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
	if c.failed != nil {
		return 0, c.failed
	}
	if !c.asked {
		if err := d.identify(ctx, c.req.TTL); err != nil {
			return 0, err
		}
	}
	p := &pending{decide: c.standing}
	c.mu.Lock()
	c.values = ctx
	switch {
	case !c.asked:
		c.asked, c.until = true, clock.Now().Add(c.req.TTL)
		if c.waiting != nil {
			c.waiting.place = d.nextPlace()
		}
		c.ask(func(int) bool { return true })
	case c.waiting != nil:
		c.waiting.look()
	}
	c.watch(p)
	c.mu.Unlock()
	err = c.wait(ctx, p)
	if c.waiting != nil {
		return c.waiting.next(), err
	}
	if err != nil {
		c.failed = err
		c.abandon(ctx)
	}
	return 0, err
}

// ask asks those nodes of some for the lock that have not granted it, and are not asked just now.
// It proposes the token of the hold, or the largest that others have accepted, or else the time.
// The caller holds c.mu.
func (c *claim) ask(some func(i int) bool) {
	token := cmp.Or(c.token, c.ballot.largest(), uint64(max(c.driver.clock().UnixMicro(), 1)))
	calls := make([]call, 0, len(c.nodes))
	for i := range c.nodes {
		s := &c.nodes[i]
		if s.lease != nil || s.asked() || !some(i) {
			continue
		}
		if !c.decided {
			c.ballot.says(i, asked)
		}
		calls = append(calls, s.propose(token))
	}
	c.send(calls...)
}

// standing reports whether it is known how the claim stands, and why it is not granted. The caller
// holds c.mu.
func (c *claim) standing() (known bool, err error) {
	outcome := c.ballot.outcome()
	switch {
	case c.token > 0: // it was granted while nobody asked
		return true, nil
	case outcome == won:
		c.win()
		return true, nil
	case outcome == undecided:
		return false, nil
	case outcome == denied && c.waiting != nil:
		return true, driver.ErrHeld
	}
	c.decided = c.waiting == nil
	failed := c.driver.disagreement(c.vote) // one that waits goes on: it is for the core to end an outage
	failed.held = outcome == denied
	return true, failed
}

// win makes a hold of what a majority has granted. The caller holds c.mu.
func (c *claim) win() {
	c.decided, c.token = true, c.ballot.goal
	left := c.req.TTL
	for i := range c.nodes {
		s := &c.nodes[i]
		if c.ballot.counts(i) {
			left = min(left, s.lease.Validity()) // a request that arrived late has the lock for what is left of the TTL
		}
	}
	c.until = clock.Now().Add(left)
}

// vote returns what node i has said to an attempt that has failed, or to a release. The caller
// holds c.mu.
func (c *claim) vote(i int) error {
	switch s := &c.nodes[i]; {
	case c.over && !s.busy() && !s.confirmed():
		return errAbsent
	case s.err == nil && s.request != idle:
		return errWaiting
	case s.err == nil && !c.over && s.lease == nil:
		return errGivenBack
	default:
		return s.err
	}
}

// Token implements [driver.Lease].
func (c *claim) Token() uint64 { return c.token }

// Validity implements [driver.Lease].
func (c *claim) Validity() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until.Sub(clock.Now())
}

// Release implements [driver.Lease]. A hold is over when a majority has released it, an attempt
// that failed when no node is left that has something of it. The other nodes are asked again in
// the background, until they answer or the TTL has passed.
func (c *claim) Release(ctx context.Context) error {
	if !c.asked {
		return nil
	}
	if err := c.driver.begin(); err != nil {
		return err
	}
	defer c.driver.work.Done()
	c.abandon(ctx)
	p := &pending{decide: c.released}
	c.mu.Lock()
	c.watch(p)
	c.mu.Unlock()
	return c.wait(ctx, p)
}

// abandon has what was taken, now or later, given back.
func (c *claim) abandon(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = ctx
	if c.token == 0 {
		c.decided = true
		if c.waiting != nil {
			c.until = clock.Now().Add(c.req.TTL) // it may have waited for longer, and have been granted something just now
		}
	}
	c.end()
}

// end has every node that has something of the claim, or comes to have it, give it back. The
// caller holds c.mu.
func (c *claim) end() {
	if !c.over {
		c.over, c.freeBy = true, clock.Now().Add(c.req.TTL)
	}
	calls := make([]call, 0, len(c.nodes))
	for i := range c.nodes {
		s := &c.nodes[i]
		if s.place != nil && !s.asked() && s.place.Known() {
			s.on(onWithdrawn, s.place)
			s.place = nil
		}
		calls = s.free(calls)
	}
	c.send(calls...)
}

// released reports whether it is known how the release goes. The caller holds c.mu.
func (c *claim) released() (known bool, err error) {
	t, busy := tally{nodes: len(c.nodes)}, false
	for i := range c.nodes {
		s := &c.nodes[i]
		t.add(s.confirmed(), s.waits(), s.without())
		busy = busy || s.busy()
	}
	switch hold := c.token != 0; {
	case hold && t.lost():
		return true, driver.ErrLost
	case hold && t.succeeded(), !hold && !busy:
		return true, nil
	case t.waiting > 0:
		return false, nil
	default:
		return true, c.driver.disagreement(c.vote)
	}
}

// woken takes in that node i has woken the waiter, and asks it. If the node keeps the lock for the
// waiter, the others do so, too, or will in a moment: then it asks all. It does not block.
func (c *claim) woken(i int, kept bool) {
	d := c.driver
	if d.begin() != nil {
		return
	}
	d.do(workers.Func(func() {
		defer d.work.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case c.over:
		case c.decided && !clock.Now().Before(c.until): // a hold that nobody has released
			c.end()
		default:
			c.nodes[i].woken = c.nodes[i].asked()
			all := kept && c.ballot.has() == 0
			c.ask(func(k int) bool { return all || k == i })
		}
	}))
}

// send makes requests to nodes. The caller holds c.mu, so that answers come in later.
func (c *claim) send(calls ...call) {
	c.driver.send(c.values, c.driver.nodeTimeout(c.req.TTL), calls)
}

// pending is a call that waits until it is known how it goes.
type pending struct {
	decide func() (known bool, err error) // called with claim.mu held, until it is known
	err    error
	done   chan struct{} // closed when err is set
}

// settled decides, and reports whether that was possible.
func (p *pending) settled() bool {
	known, err := p.decide()
	if known {
		p.err = err
		close(p.done)
	}
	return known
}

// watch begins to wait for p, which may be decided already. The caller holds c.mu.
func (c *claim) watch(p *pending) {
	p.done = make(chan struct{})
	if !p.settled() {
		c.calls = append(c.calls, p)
	}
}

// wait returns p's error, or ctx's if that ends first. Then nothing is decided for p any more.
func (c *claim) wait(ctx context.Context, p *pending) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.calls, p); i >= 0 {
		c.calls = slices.Delete(c.calls, i, i+1)
		return ctx.Err()
	}
	return p.err
}

// changed does what follows from what a node has said. The caller holds c.mu.
func (c *claim) changed() {
	if !c.decided { // the nodes whose token is too small are to accept the one that the others have
		var calls []call
		for _, i := range c.ballot.raise() {
			s := &c.nodes[i]
			calls = append(calls, s.call(&claimRequest{node: s, what: toRaise, of: s.lease, token: c.ballot.goal}))
		}
		c.send(calls...)
	}
	if c.waiting != nil && len(c.calls) == 0 {
		c.waiting.tell()
	}
	c.calls = slices.DeleteFunc(c.calls, (*pending).settled)
}
