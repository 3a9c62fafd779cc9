package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/clock"
)

// Extend implements [locker.Lease].
func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.driver.ExtendAll(ctx, []locker.Lease{l}, ttl)[0]
}

// ExtendAll implements [locker.BatchExtender]: one round trip to each node, if the node can do that.
func (d *Driver) ExtendAll(ctx context.Context, leases []locker.Lease, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	if err := d.begin(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer d.work.Done()
	sent := clock.Now()
	extensions := make([]*extension, 0, len(leases))
	for _, l := range leases {
		extensions = append(extensions, l.(*lease).extension(sent, ttl))
	}
	for i := range d.nodes {
		d.extendAt(ctx, i, extensions, ttl)
	}
	for i, e := range extensions {
		if err := e.lease.await(ctx, func() bool { return e.decide(ctx, &errs[i]) }); err != nil {
			errs[i] = err
		}
	}
	return errs
}

// extension is one Extend of one lease.
type extension struct {
	lease *lease
	sent  time.Time
	ttl   time.Duration
	asked []locker.RaisableLease // by node; nil: nothing there is ours
	votes []error                // by node, nil: extended
	over  bool                   // the lease is
	done  bool                   // a majority has extended in time
}

// extension finds out which nodes are to be asked: none if the lease has lapsed.
func (l *lease) extension(now time.Time, ttl time.Duration) *extension {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.seats)
	e := &extension{lease: l, sent: now, ttl: ttl, asked: make([]locker.RaisableLease, n), votes: make([]error, n)}
	e.over = l.over || !now.Before(l.until)
	for i := range l.seats {
		switch s := &l.seats[i]; {
		case s.lease != nil && !e.over:
			e.asked[i], e.votes[i] = s.lease, errWaiting
		case s.asking:
			e.votes[i] = noAnswer(l.timeout())
		default:
			e.votes[i] = errAbsent
		}
	}
	return e
}

// extendAt asks one node to extend what is ours there: all that has its token in one request, what the node
// granted late and under a smaller token in one each, for that has to be raised first.
func (d *Driver) extendAt(ctx context.Context, i int, all []*extension, ttl time.Duration) {
	n, timeout := d.nodes[i], d.nodeTimeout(ttl)
	var together []*extension
	for _, e := range all {
		ours := e.asked[i]
		switch {
		case ours == nil:
		case ours.Token() < e.lease.token:
			d.call(ctx, n, timeout, func(ctx context.Context) error {
				if err := ours.Raise(ctx, e.lease.token); err != nil {
					return err
				}
				return ours.Extend(ctx, ttl)
			}, e.answers(ctx, i), e.misses(i))
		default:
			together = append(together, e)
		}
	}
	batch, ok := n.Proposer.(locker.BatchExtender)
	if ok && len(together) > 1 {
		d.extendTogether(ctx, n, batch, i, together, ttl)
		return
	}
	for _, e := range together {
		d.call(ctx, n, timeout, func(ctx context.Context) error {
			return e.asked[i].Extend(ctx, ttl)
		}, e.answers(ctx, i), e.misses(i))
	}
}

var errIncomplete = errors.New("the Driver has not answered for every lease")

// extendTogether makes one request for all.
func (d *Driver) extendTogether(
	ctx context.Context, n *node, batch locker.BatchExtender, i int, all []*extension, ttl time.Duration,
) {
	leases := make([]locker.Lease, len(all))
	for k, e := range all {
		leases[k] = e.asked[i]
	}
	var errs []error
	timeout := d.nodeTimeout(ttl)
	d.call(ctx, n, timeout, func(ctx context.Context) error {
		errs = batch.ExtendAll(ctx, leases, ttl)
		if len(errs) != len(all) {
			errs = nil
			return errIncomplete
		}
		return errs[0] // for the health of the node
	}, func(err error) {
		for k, e := range all {
			if errs != nil {
				err = inTime(errs[k], timeout)
			}
			e.answers(ctx, i)(err)
		}
	}, func(err error) {
		for _, e := range all {
			e.misses(i)(err)
		}
	})
}

// answers returns what takes in a node's answer.
func (e *extension) answers(ctx context.Context, i int) func(error) {
	return func(err error) {
		l := e.lease
		l.mu.Lock()
		defer l.mu.Unlock()
		e.votes[i] = err
		if s := &l.seats[i]; errors.Is(err, locker.ErrLost) && s.lease == e.asked[i] {
			s.lease = nil
		}
		if e.done {
			l.rejoin(ctx)
		}
		l.changed()
	}
}

// misses returns what takes in that a node has not answered in time.
func (e *extension) misses(i int) func(error) {
	return func(err error) {
		e.lease.mu.Lock()
		defer e.lease.mu.Unlock()
		e.votes[i] = err
		e.lease.changed()
	}
}

// decide ends the extension if its outcome is known: a majority has extended, or enough nodes say that
// they do not have the lease, or too many have failed. The caller holds lease.mu.
func (e *extension) decide(ctx context.Context, err *error) bool {
	l := e.lease
	var extended, without, waiting int
	for _, v := range e.votes {
		switch {
		case v == nil:
			extended++
		case v == errWaiting: //nolint:errorlint // never wrapped
			waiting++
		case errors.Is(v, locker.ErrLost), v == errAbsent: //nolint:errorlint // never wrapped
			without++
		}
	}
	n := len(e.votes)
	quorum := majority(n)
	switch {
	case e.over, extended >= quorum && !clock.Now().Before(l.until), without > n-quorum:
		// A majority that answers too late proves nothing: another may have come and gone.
		*err = locker.ErrLost
		l.end()
	case extended >= quorum:
		if until := e.sent.Add(e.ttl); until.After(l.until) {
			l.until = until
		}
		e.done = true
		l.rejoin(ctx)
	case extended+waiting >= quorum, without+waiting > n-quorum:
		return false
	default:
		*err = &Error{Votes: l.name(e.votes)}
	}
	return true
}

// name makes Votes of what the nodes said.
func (l *lease) name(votes []error) []Vote {
	named := make([]Vote, len(votes))
	for i, err := range votes {
		named[i] = Vote{l.driver.nodes[i].name, err}
	}
	return named
}

// rejoin has the nodes that do not have the lease, for they were away or came back empty, take it as
// well, now that a majority is known to have it. They take it under the token that all have, or a larger
// one, so that whoever comes after gets a larger one still. The caller holds l.mu.
func (l *lease) rejoin(ctx context.Context) {
	if l.over || !clock.Now().Before(l.until) {
		return
	}
	for i := range l.seats {
		if s := &l.seats[i]; s.lease == nil && !s.asking {
			l.propose(ctx, i, l.token)
		}
	}
}
