package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// Extend implements [driver.Lease].
func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.driver.ExtendAll(ctx, []driver.Lease{l}, ttl)[0]
}

// ExtendAll implements [driver.BatchExtender]: one round trip to each node, if the node can do that.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	if err := d.begin(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer d.work.Done()
	extensions := make([]*extension, len(leases))
	sent := clock.Now()
	calls := make([]call, 0, len(d.nodes))
	for k, l := range leases {
		extensions[k] = newExtension(l.(*lease), sent, ttl)
		calls = extensions[k].begin(ctx, calls)
	}
	for i := range d.nodes {
		calls = d.extendAt(calls, i, extensions)
	}
	d.send(ctx, d.nodeTimeout(ttl), calls)
	for k, e := range extensions {
		errs[k] = e.lease.wait(ctx, &e.waiter)
	}
	return errs
}

// extension is one Extend of one lease. Nodes that do not have the lock, because they were unreachable, or another's attempt
// had it there, or they came back empty, are asked for it meanwhile. They take it under the token that all have, or a
// larger one, so that the next holder gets a larger one still.
type extension struct {
	waiter
	lease *lease
	sent  time.Time
	ttl   time.Duration
	parts []part // one a node
	done  bool   // a majority has extended in time
}

// part is what an Extend knows of one node.
type part struct {
	ours  driver.RaisableLease // what it had when the Extend began; nil: nothing
	vote  error                // nil: it has the lock for a TTL from sent, or later
	lacks bool                 // it is known not to have had the lock all the time since the last success
}

func newExtension(l *lease, sent time.Time, ttl time.Duration) *extension {
	e := &extension{lease: l, sent: sent, ttl: ttl, parts: make([]part, len(l.seats))}
	e.waiter = waiter{decide: e.decide, ext: e}
	return e
}

// begin finds out which nodes are to be asked for what: none for anything if the lease has expired. It adds the calls that ask for
// the lock.
func (e *extension) begin(ctx context.Context, calls []call) []call {
	l := e.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values = ctx
	over := l.over || !e.sent.Before(l.until)
	for i := range l.seats {
		s, p := &l.seats[i], &e.parts[i]
		switch {
		case over:
			p.vote = errAbsent
		case s.lease != nil:
			p.ours, p.vote = s.lease, errWaiting
		case s.asking && s.late:
			p.vote = noAnswer(l.timeout())
		default:
			p.vote = errJoining
			if !s.asking {
				calls = l.propose(calls, i, l.token)
			}
		}
		p.lacks = s.joins
	}
	l.watch(&e.waiter)
	return calls
}

// joined takes in what a node says that was asked for the lock. What it has granted before the extension began
// lasts from then, and is to be extended like the others. The caller holds lease.mu.
func (e *extension) joined(p *proposeRequest, err error) {
	l, vote := e.lease, &e.parts[p.i].vote
	switch {
	case *vote != errJoining: //nolint:errorlint // never wrapped
	case l.over, errors.Is(err, driver.ErrHeld):
		*vote = errAbsent
	case err != nil:
		*vote = err
	case p.ours.Token() >= l.token && covered(p.ours, e.sent.Add(e.ttl)):
		*vote = nil
	default:
		*vote = errWaiting
		l.send(l.driver.extend(nil, p.i, []target{{e, p.ours}}))
	}
}

// mostTogether is how many leases a node is asked to extend in one request. Of more than that one time-out would be that of all.
const mostTogether = 1024

// extendAt adds the calls that ask node i to extend what is ours there: all that has its token in as few requests as may be, what
// the node granted late and under a smaller token in one each, because that has to be raised, too.
func (d *Driver) extendAt(calls []call, i int, all []*extension) []call {
	_, batches := d.nodes[i].Proposer.(driver.BatchExtender)
	together := make([]target, 0, len(all))
	for _, e := range all {
		switch t := (target{e, e.parts[i].ours}); {
		case t.ours == nil:
		case batches && t.ours.Token() >= e.lease.token:
			together = append(together, t)
		default:
			calls = d.extend(calls, i, []target{t})
		}
	}
	for part := range slices.Chunk(together, mostTogether) {
		calls = d.extend(calls, i, part)
	}
	return calls
}

func (d *Driver) extend(calls []call, i int, targets []target) []call {
	n := d.nodes[i]
	return append(calls, call{node: n, request: &extendRequest{node: n, i: i, targets: targets}})
}

// target is what a node is to extend.
type target struct {
	*extension
	ours driver.RaisableLease // there
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

func (x *extendRequest) send(ctx context.Context) error {
	if len(x.targets) == 1 {
		return x.targets[0].send(ctx)
	}
	leases := make([]driver.Lease, len(x.targets))
	for k, t := range x.targets {
		leases[k] = t.ours
	}
	errs := x.node.Proposer.(driver.BatchExtender).ExtendAll(ctx, leases, x.targets[0].ttl)
	if len(errs) != len(leases) {
		return errIncomplete
	}
	x.errs = errs
	return errs[0] // for the health of the node
}

// send extends what is ours at a node, and raises its token if that is smaller than the lease's, or not known because
// the answer of the node was lost.
func (t target) send(ctx context.Context) error {
	err := t.ours.Extend(ctx, t.ttl)
	if err != nil || t.ours.Token() >= t.lease.token {
		return err
	}
	err = t.ours.Raise(ctx, t.lease.token)
	if errors.Is(err, driver.ErrLost) {
		return errNotRaised // it was there a moment ago
	}
	return err
}

func (x *extendRequest) heard(err error, over bool) {
	for k, t := range x.targets {
		if over && x.errs != nil {
			err = inTime(x.errs[k], t.lease.timeout())
		}
		t.heard(x.i, err)
	}
}

// heard takes in the answer of node i.
func (t target) heard(i int, err error) {
	l := t.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	t.parts[i].vote = err
	if s := &l.seats[i]; errors.Is(err, driver.ErrLost) && s.lease == t.ours && !l.over {
		s.lease = nil
	}
	if t.done {
		l.send(t.settle(nil, i))
	}
	l.changed()
}

// decide reports whether the outcome of the extension is known: a majority has extended, or enough nodes say that
// they did not have the lease, or too many have failed. The caller holds lease.mu.
func (e *extension) decide() (over bool, err error) {
	l := e.lease
	t := tally{nodes: len(e.parts)}
	for _, p := range e.parts {
		lost := errors.Is(p.vote, driver.ErrLost) || p.vote == errAbsent //nolint:errorlint // never wrapped
		waits := p.vote == errWaiting || p.vote == errJoining            //nolint:errorlint // never wrapped
		t.add(p.vote == nil, waits, p.lacks || lost)
	}
	switch {
	case l.over, t.lost(), t.agreed >= t.quorum() && !clock.Now().Before(l.until):
		// Another may have come and gone, if a majority had lost it or answers too late.
		l.end()
		return true, driver.ErrLost
	case t.succeeded(): // nodes that join count when it is known that the others have not lost it
		e.succeed()
		return true, nil
	case t.agreed+t.waiting >= t.quorum(), t.mayBeLost():
		return false, nil
	default:
		return true, l.driver.disagreement(func(i int) error { return e.parts[i].vote })
	}
}

func (e *extension) succeed() {
	l := e.lease
	if until := e.sent.Add(e.ttl); until.After(l.until) {
		l.until = until
	}
	e.done = true
	var calls []call
	for i := range e.parts {
		calls = e.settle(calls, i)
	}
	l.send(calls)
}

// settle has node i count in full if it has extended what it had, and asks it for the lock if it has lost that: a majority is known to
// have it. The caller holds lease.mu.
func (e *extension) settle(calls []call, i int) []call {
	l, p := e.lease, &e.parts[i]
	switch s := &l.seats[i]; {
	case p.vote == nil && p.ours != nil && p.ours == s.lease:
		s.joins = false
	case errors.Is(p.vote, driver.ErrLost) && !s.busy() && !l.over && clock.Now().Before(l.until):
		return l.propose(calls, i, l.token)
	}
	return calls
}
