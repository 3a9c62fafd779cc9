package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/quorum"
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
	ours  quorum.Candidate // what it had when the Extend began; nil: nothing
	vote  error            // nil: it has the lock for a TTL from sent, or later
	lacks bool             // it is known not to have had the lock all the time since the last success
}

func newExtension(l *lease, sent time.Time, ttl time.Duration) *extension {
	e := &extension{lease: l, sent: sent, ttl: ttl, parts: make([]part, len(l.seats))}
	e.waiter = waiter{decide: e.decide}
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

// join returns what has come of asking node i for the lock. What it has granted before the extension began lasts from then, and
// is to be extended like the others. The caller holds lease.mu.
func (e *extension) join(i int) error {
	l := e.lease
	switch s := &l.seats[i]; {
	case s.asking && !s.late:
		return errJoining
	case l.over, errors.Is(s.err, driver.ErrHeld):
		return errAbsent
	case s.err != nil:
		return s.err
	case s.lease == nil:
		return driver.ErrLost // it has granted it, and told another Extend that it has forgotten that
	case s.lease.Token() >= l.token && e.covered(s.lease):
		return nil
	default:
		n := l.driver.nodes[i]
		l.send([]call{{node: n, request: &extendRequest{node: n, i: i, targets: []target{{e, s.lease}}}}})
		return errWaiting
	}
}

// covered reports whether a node that has just granted ours keeps it for the whole TTL.
func (e *extension) covered(ours driver.Lease) bool {
	return !clock.Now().Add(ours.Validity()).Before(e.sent.Add(e.ttl))
}

// decide reports whether the outcome of the extension is known: a majority has extended, or enough nodes say that
// they did not have the lease, or too many have failed. The caller holds lease.mu.
func (e *extension) decide() (over bool, err error) {
	l := e.lease
	t := tally{nodes: len(e.parts)}
	for i := range e.parts {
		p := &e.parts[i]
		if p.vote == errJoining { //nolint:errorlint // never wrapped
			p.vote = e.join(i)
		}
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
