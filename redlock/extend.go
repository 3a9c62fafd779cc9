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

// Extend implements [driver.Lease].
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	return c.driver.ExtendAll(ctx, []driver.Lease{c}, ttl)[0]
}

// ExtendAll implements [driver.BatchExtender]: one round trip to each node, if the node can do
// that.
func (d *backend) ExtendAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
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
		all[k] = &extension{claim: l.(*claim), sent: sent, ttl: ttl, nodes: make([]extended, len(d.nodes))}
		calls = all[k].begin(ctx, calls)
	}
	for i, n := range d.nodes {
		together := 1
		if _, batches := n.Node.(driver.BatchExtender); batches {
			together = mostTogether
		}
		targets := make([]target, 0, len(all))
		for _, e := range all {
			if of := e.nodes[i].of; of != nil {
				targets = append(targets, target{e, of})
			}
		}
		for some := range slices.Chunk(targets, together) {
			calls = append(calls, call{node: n, request: &extendRequest{node: n, i: i, targets: some}})
		}
	}
	d.send(ctx, d.nodeTimeout(ttl), calls)
	for k, e := range all {
		errs[k] = e.claim.wait(ctx, &e.pending)
	}
	return errs
}

// extension is one Extend of one claim. Nodes that do not have the lock, because they were
// unreachable, or another's attempt had it there, or they came back empty, are asked for it
// meanwhile. They take it under the token that all have, or a larger one, so that the next holder
// gets a larger one still.
type extension struct {
	pending
	claim *claim
	sent  time.Time
	ttl   time.Duration
	nodes []extended
	done  bool // a majority has extended in time
}

// extended is what an Extend knows of one node.
type extended struct {
	of    quorum.Candidate // what it had when the Extend began; nil: nothing
	vote  error            // nil: it has the lock for a TTL from sent, or later
	lacks bool             // it is known not to have had the lock all the time since the last success
}

// begin finds out which nodes are to be asked for what: none for anything if the lock has expired.
// It adds the calls that ask for the lock.
func (e *extension) begin(ctx context.Context, calls []call) []call {
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
			if !s.asked() {
				calls = append(calls, s.propose(c.token))
			}
		}
		x.lacks = s.without()
	}
	e.decide = e.standing
	c.watch(&e.pending)
	return calls
}

// standing reports whether the outcome is known: a majority has extended, or enough nodes say that
// they did not have the lock, or too many have failed. The caller holds claim.mu.
func (e *extension) standing() (known bool, err error) {
	c := e.claim
	t := tally{nodes: len(e.nodes)}
	for i := range e.nodes {
		x := &e.nodes[i]
		if x.vote == errJoining { //nolint:errorlint // never wrapped
			x.vote = e.join(&c.nodes[i])
		}
		lost := errors.Is(x.vote, driver.ErrLost) || x.vote == errAbsent //nolint:errorlint // never wrapped
		waits := x.vote == errWaiting || x.vote == errJoining            //nolint:errorlint // never wrapped
		t.add(x.vote == nil, waits, x.lacks || lost)
	}
	switch {
	case c.over, t.lost(), t.agreed >= t.quorum() && !clock.Now().Before(c.until):
		// Another may have come and gone, if a majority had lost it or answers too late.
		c.end()
		return true, driver.ErrLost
	case t.succeeded(): // nodes that join count when it is known that the others have not lost it
		if until := e.sent.Add(e.ttl); until.After(c.until) {
			c.until = until
		}
		e.done = true
		for i := range e.nodes {
			e.settle(i)
		}
		return true, nil
	case t.agreed+t.waiting >= t.quorum(), t.mayBeLost():
		return false, nil
	default:
		return true, c.driver.disagreement(func(i int) error { return e.nodes[i].vote })
	}
}

// join returns what has come of asking a node for the lock. What it has granted before the
// extension began lasts from then, and is to be extended like the others. The caller holds
// claim.mu.
func (e *extension) join(s *nodeState) error {
	c := e.claim
	switch {
	case s.request == proposing:
		return errJoining
	case c.over, errors.Is(s.err, driver.ErrHeld):
		return errAbsent
	case s.err != nil:
		return s.err
	case s.lease == nil:
		return driver.ErrLost // it has granted it, and told another Extend that it has forgotten that
	case s.lease.Token() >= c.token && !clock.Now().Add(s.lease.Validity()).Before(e.sent.Add(e.ttl)):
		return nil
	default:
		n := c.driver.nodes[s.i]
		c.send(call{node: n, request: &extendRequest{node: n, i: s.i, targets: []target{{e, s.lease}}}})
		return errWaiting
	}
}

// settle has node i count in full if it has extended what it had, and asks it for the lock if it
// has lost that: a majority is known to have it. The caller holds claim.mu.
func (e *extension) settle(i int) {
	c, x := e.claim, &e.nodes[i]
	switch s := &c.nodes[i]; {
	case x.vote == nil && x.of != nil && x.of == s.lease:
		s.on(onExtend, s.lease)
	case errors.Is(x.vote, driver.ErrLost) && !s.busy() && !c.over && clock.Now().Before(c.until):
		c.send(s.propose(c.token))
	}
}

// mostTogether is how many leases a node is asked to extend in one request. Of more than that one
// time-out would be that of all.
const mostTogether = 1024

// target is what a node is to extend.
type target struct {
	*extension
	of quorum.Candidate // there
}

// extendRequest asks node i for some extensions.
type extendRequest struct {
	node    *node
	i       int
	targets []target
	errs    []error // of each, if there is more than one
}

var (
	errIncomplete = errors.New("the Driver has not answered for every lease")
	errNotRaised  = errors.New("has accepted a larger token")
)

// send extends what is ours at the node, and raises its token if that is smaller than the claim's,
// or not known because the answer of the node was lost.
func (r *extendRequest) send(ctx context.Context) error {
	var errs []error
	if ttl := r.targets[0].ttl; len(r.targets) == 1 {
		errs = []error{r.targets[0].of.Extend(ctx, ttl)}
	} else {
		leases := make([]driver.Lease, len(r.targets))
		for k, t := range r.targets {
			leases[k] = t.of
		}
		errs = r.node.Node.(driver.BatchExtender).ExtendAll(ctx, leases, ttl)
	}
	if len(errs) != len(r.targets) {
		return errIncomplete
	}
	for k, t := range r.targets {
		if errs[k] != nil || t.of.Token() >= t.claim.token {
			continue
		}
		if errs[k] = t.of.Raise(ctx, t.claim.token); errors.Is(errs[k], driver.ErrLost) {
			errs[k] = errNotRaised // it was there a moment ago
		}
	}
	if len(errs) > 1 {
		r.errs = errs
	}
	return errs[0] // for the health of the node, too
}

func (r *extendRequest) onReply(err error, over bool) {
	for k, t := range r.targets {
		if over && r.errs != nil {
			err = inTime(r.errs[k], t.claim.driver.nodeTimeout(t.ttl))
		}
		t.onReply(r.i, err)
	}
}

// onReply takes in the answer of node i.
func (t target) onReply(i int, err error) {
	c := t.claim
	c.mu.Lock()
	defer c.mu.Unlock()
	t.nodes[i].vote = err
	if s := &c.nodes[i]; errors.Is(err, driver.ErrLost) && s.lease == t.of && !c.over {
		s.on(onGone, nil)
	}
	if t.done {
		t.settle(i)
	}
	c.changed()
}
