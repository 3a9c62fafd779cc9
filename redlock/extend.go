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
	decided := make([]*waiter, len(leases))
	r := d.round(ctx, d.nodeTimeout(ttl))
	sent := clock.Now()
	for k, l := range leases {
		e := &extension{lease: l.(*lease), sent: sent, ttl: ttl}
		extensions[k] = e
		decided[k] = e.begin(r, func() bool { return e.decide(ctx, &errs[k]) })
	}
	for i := range d.nodes {
		r.extendAt(i, extensions)
	}
	r.sent()
	for k, e := range extensions {
		if err := e.lease.wait(ctx, decided[k]); err != nil {
			errs[k] = err
		}
		e.end()
	}
	return errs
}

// extension is one Extend of one lease. Nodes that do not have the lock, for they were away or another's attempt had
// it there, or that came back empty, are asked for it meanwhile. They take it under the token that all have, or a
// larger one, so that whoever comes after gets a larger one still.
type extension struct {
	lease *lease
	sent  time.Time
	ttl   time.Duration
	ours  []driver.RaisableLease // by node: what it is asked to extend; nil: nothing
	votes []error                // by node; nil: it has the lock for a TTL from sent, or later
	lacks []bool                 // by node: it is known not to have had the lock all the time since the last success
	over  bool                   // the lease is
	done  bool                   // a majority has extended in time
}

// begin finds out which nodes are to be asked for what: none for anything if the lease has lapsed. It asks those for the
// lock that do not have it.
func (e *extension) begin(r *round, decided func() bool) *waiter {
	l := e.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.seats)
	e.ours, e.votes, e.lacks = make([]driver.RaisableLease, n), make([]error, n), make([]bool, n)
	e.over = l.over || !e.sent.Before(l.until)
	for i := range l.seats {
		s := &l.seats[i]
		e.lacks[i] = s.joins
		switch {
		case e.over:
			e.votes[i] = errAbsent
		case s.lease != nil:
			e.ours[i], e.votes[i] = s.lease, errWaiting
		case s.asking && s.late:
			e.votes[i] = noAnswer(l.timeout())
		case s.asking:
			e.votes[i] = errJoining
		default:
			e.votes[i], e.lacks[i] = errJoining, true
			l.propose(r, i, l.token)
		}
	}
	l.extensions = append(l.extensions, e)
	return l.watch(decided)
}

// end has the lease forget the extension.
func (e *extension) end() {
	l := e.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	l.extensions = slices.DeleteFunc(l.extensions, func(other *extension) bool { return other == e })
}

// joined takes in what a node says that was asked for the lock at sent. What it has granted before the extension began
// lasts from then, and is to be extended like the others. The caller holds lease.mu.
func (e *extension) joined(p *proposeMessage, err error) {
	i := p.i
	switch {
	case e.votes[i] != errJoining: //nolint:errorlint // never wrapped
	case e.lease.over:
		e.votes[i] = errAbsent
	case errors.Is(err, driver.ErrHeld):
		e.votes[i] = errAbsent
	case err != nil:
		e.votes[i] = err
	case p.ours.Token() >= e.lease.token && !p.sent.Before(e.sent) && e.covered(p.ours):
		e.votes[i] = nil
	default:
		e.votes[i] = errWaiting
		d := e.lease.driver
		r := d.round(p.round.ctx, d.nodeTimeout(e.ttl))
		r.call(d.nodes[i], &extendMessage{round: r, i: i, all: []*extension{e}, ours: []driver.Lease{p.ours}})
		r.sent()
	}
}

// covered reports whether a node that has just granted ours keeps it for the whole TTL.
func (e *extension) covered(ours driver.Lease) bool {
	return !clock.Now().Add(ours.Validity()).Before(e.sent.Add(e.ttl))
}

// mostTogether is how many leases a node is asked to extend in one request. Of more than that one time-out would be that of all.
const mostTogether = 1024

// extendAt asks one node to extend what is ours there: all that has its token in as few requests as may be, what the node
// granted late and under a smaller token in one each, for that has to be raised, too.
func (r *round) extendAt(i int, all []*extension) {
	n := r.driver.nodes[i]
	_, batches := n.Proposer.(driver.BatchExtender)
	together := &extendMessage{round: r, i: i}
	for _, e := range all {
		ours := e.ours[i]
		if ours == nil {
			continue
		}
		if !batches || ours.Token() < e.lease.token {
			r.call(n, &extendMessage{round: r, i: i, all: []*extension{e}, ours: []driver.Lease{ours}})
			continue
		}
		together.all, together.ours = append(together.all, e), append(together.ours, ours)
		if len(together.all) == mostTogether {
			r.call(n, together)
			together = &extendMessage{round: r, i: i}
		}
	}
	if len(together.all) > 0 {
		r.call(n, together)
	}
}

// extendMessage asks node i for some extensions.
type extendMessage struct {
	round *round
	i     int
	all   []*extension
	ours  []driver.Lease // of each, there
	errs  []error        // of each, if there is more than one
}

var (
	errIncomplete = errors.New("the Driver has not answered for every lease")
	errNotRaised  = errors.New("has accepted a larger token")
)

func (x *extendMessage) send(ctx context.Context) error {
	first := x.all[0]
	if len(x.all) == 1 {
		return first.extendOne(ctx, x.ours[0].(driver.RaisableLease))
	}
	batch := x.round.driver.nodes[x.i].Proposer.(driver.BatchExtender)
	errs := batch.ExtendAll(ctx, x.ours, first.ttl)
	if len(errs) != len(x.all) {
		return errIncomplete
	}
	x.errs = errs
	return errs[0] // for the health of the node
}

// extendOne extends what is ours at a node, and raises its token if that is smaller than the lease's, or not known,
// for the answer of the node was lost.
func (e *extension) extendOne(ctx context.Context, ours driver.RaisableLease) error {
	err := ours.Extend(ctx, e.ttl)
	if err != nil || ours.Token() >= e.lease.token {
		return err
	}
	err = ours.Raise(ctx, e.lease.token)
	if errors.Is(err, driver.ErrLost) {
		return errNotRaised // it was there a moment ago
	}
	return err
}

func (x *extendMessage) answered(err error) {
	for k, e := range x.all {
		if x.errs != nil {
			err = inTime(x.errs[k], x.round.timeout)
		}
		e.answered(x.round.ctx, x.i, x.ours[k], err)
	}
}

func (x *extendMessage) missed(err error) {
	for _, e := range x.all {
		e.lease.mu.Lock()
		e.votes[x.i] = err
		e.lease.changed()
		e.lease.mu.Unlock()
	}
}

// answered takes in the answer of node i about what was ours there.
func (e *extension) answered(ctx context.Context, i int, ours driver.Lease, err error) {
	l := e.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	e.votes[i] = err
	if s := &l.seats[i]; errors.Is(err, driver.ErrLost) && s.lease == ours && !l.over {
		s.lease = nil
		if e.done {
			l.rejoin(ctx, e)
		}
	} else if err == nil && e.done && s.lease == ours && e.ours[i] == ours {
		s.joins = false
	}
	l.changed()
}

// count says how many nodes have extended or joined, how many have yet to answer, how many had not the lock all the time,
// and how many more may not have had it.
func (e *extension) count() (extended, waiting, without, doubtful int) {
	for i, v := range e.votes {
		waits := v == errWaiting || v == errJoining //nolint:errorlint // never wrapped
		switch {
		case v == nil:
			extended++
		case waits:
			waiting++
		}
		switch {
		case e.lacks[i], errors.Is(v, driver.ErrLost), v == errAbsent: //nolint:errorlint // never wrapped
			without++
		case waits:
			doubtful++
		}
	}
	return extended, waiting, without, doubtful
}

// decide ends the extension if its outcome is known: a majority has extended, or enough nodes say that
// they did not have the lease, or too many have failed. The caller holds lease.mu.
func (e *extension) decide(ctx context.Context, err *error) bool {
	l := e.lease
	extended, waiting, without, doubtful := e.count()
	n := len(e.votes)
	quorum := majority(n)
	switch {
	case e.over, l.over, without > n-quorum, extended >= quorum && !clock.Now().Before(l.until):
		// Another may have come and gone, if a majority had lost it or answers too late.
		*err = driver.ErrLost
		l.end(ctx)
	case extended >= quorum && without+doubtful <= n-quorum:
		// Nodes that join count when it is known that the others have not lost it.
		if until := e.sent.Add(e.ttl); until.After(l.until) {
			l.until = until
		}
		e.done = true
		for i, v := range e.votes {
			l.seats[i].joins = l.seats[i].joins && (v != nil || e.ours[i] == nil)
		}
		l.rejoin(ctx, e)
	case extended+waiting >= quorum, without+doubtful > n-quorum:
		return false
	default:
		*err = &Error{Votes: l.name(e.votes)}
	}
	return true
}

// rejoin asks those nodes for the lock that have lost it, now that a majority is known to have it. The caller holds l.mu.
func (l *lease) rejoin(ctx context.Context, e *extension) {
	if l.over || !clock.Now().Before(l.until) {
		return
	}
	r := l.driver.round(ctx, l.timeout())
	for i := range l.seats {
		if s := &l.seats[i]; errors.Is(e.votes[i], driver.ErrLost) && s.lease == nil && !s.asking {
			l.propose(r, i, l.token)
		}
	}
	r.sent()
}

// name makes Votes of what the nodes said.
func (l *lease) name(votes []error) []Vote {
	named := make([]Vote, len(votes))
	for i, err := range votes {
		named[i] = Vote{l.driver.nodes[i].name, err}
	}
	return named
}
