package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/clock"
)

// lease is one attempt to take the lock, and the tenure that it may become. Requests to the nodes outlive
// the calls that made them: whatever a node answers, and whenever, comes here.
type lease struct {
	driver *Driver
	req    locker.Request
	token  uint64 // that a majority has accepted; 0 if the attempt failed; set before Acquire returns

	mu      sync.Mutex
	seats   []seat // one a node
	ballot  ballot
	decided bool      // the ballot is over
	until   time.Time // by package clock
	over    bool      // released or lost: what a node still grants is given back
	freeBy  time.Time // until when that is tried
	waiters []*waiter
}

// seat is what is known of one node.
type seat struct {
	lease   locker.RaisableLease // that is ours there, or may be; nil if nothing is
	asking  bool                 // a Propose is under way
	freeing bool                 // a Release is under way
	late    bool                 // and has not been answered in time
	freed   bool                 // the node had it, and has confirmed its release
	err     error                // of the latest request
	pausing bool                 // a timer will free it again
	pause   time.Duration        // how long, the last time
}

// waiting says that the node may answer any moment.
func (s *seat) waiting() bool { return (s.asking || s.freeing) && !s.late }

// free says that the node has nothing of ours, and that no request is under way that may change that.
func (s *seat) free() bool { return (s.lease == nil || s.freed) && !s.asking }

// Token implements [locker.Lease].
func (l *lease) Token() uint64 { return l.token }

// Validity implements [locker.Lease].
func (l *lease) Validity() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until.Sub(clock.Now())
}

func (l *lease) timeout() time.Duration { return l.driver.nodeTimeout(l.req.TTL) }

// Acquire implements [locker.Driver].
func (d *Driver) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	if err := d.begin(); err != nil {
		return nil, err
	}
	defer d.work.Done()
	l := &lease{
		driver: d, req: req, ballot: newBallot(len(d.nodes)), seats: make([]seat, len(d.nodes)),
		until: clock.Now().Add(req.TTL),
	}
	token := uint64(max(d.clock().UnixMicro(), 1))
	l.mu.Lock()
	for i := range l.seats {
		l.propose(ctx, i, token)
	}
	l.mu.Unlock()
	var err error
	if interrupted := l.await(ctx, func() bool { return l.decide(&err) }); interrupted != nil {
		err = interrupted
	}
	if err == nil {
		return l, nil
	}
	return l.abandon(), err
}

// decide ends the attempt if its outcome is known, and sets err to why it failed. The caller holds l.mu.
func (l *lease) decide(err *error) bool {
	o := l.driver.outcome(&l.ballot)
	switch o {
	case undecided:
		return false
	case won:
		l.token = l.ballot.goal
	case denied, failed:
		*err = &Error{Votes: l.votes(), held: o == denied}
	}
	l.decided = true
	return true
}

// abandon has what an attempt that failed may have taken, now or later, given back. It returns a Lease whose
// Release says how that goes, or nil if nothing was taken.
func (l *lease) abandon() locker.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decided, l.token = true, 0
	l.end()
	for i := range l.seats {
		if !l.seats[i].free() {
			return l
		}
	}
	return nil
}

// votes is what each node has said to the attempt. The caller holds l.mu.
func (l *lease) votes() []Vote {
	votes := make([]Vote, len(l.seats))
	for i := range l.seats {
		votes[i] = Vote{l.driver.nodes[i].name, l.seats[i].err}
		if s := l.seats[i]; s.err == nil && s.asking {
			votes[i].Err = errWaiting
		}
	}
	return votes
}

// propose asks a node for the lock. The caller holds l.mu.
func (l *lease) propose(ctx context.Context, i int, token uint64) {
	s, n := &l.seats[i], l.driver.nodes[i]
	s.asking, s.late, s.err = true, false, nil
	var ours locker.RaisableLease
	l.driver.call(ctx, n, l.timeout(), func(ctx context.Context) (err error) {
		ours, err = n.Propose(ctx, l.req, token)
		return err
	}, func(err error) {
		l.proposed(ctx, i, ours, err)
	}, func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.late, s.err = true, err
		l.ballot.absent(i)
		l.changed()
	})
}

// proposed takes in the answer of a node that was asked for the lock.
func (l *lease) proposed(ctx context.Context, i int, ours locker.RaisableLease, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.seats[i]
	s.lease, s.asking, s.late, s.err = ours, false, false, err
	if l.over && ours != nil {
		l.free(i)
	}
	if !l.decided {
		switch {
		case err == nil:
			l.ballot.granted(i, ours.Token())
		case errors.Is(err, locker.ErrHeld):
			l.ballot.refused(i)
		default:
			l.ballot.absent(i)
		}
		for _, j := range l.driver.raise(&l.ballot) {
			l.raise(ctx, j)
		}
	}
	l.changed()
}

// raise has a node accept the token that the others have. The caller holds l.mu.
func (l *lease) raise(ctx context.Context, i int) {
	s, ours, goal := &l.seats[i], l.seats[i].lease, l.ballot.goal
	absent := func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.err = err
		l.ballot.absent(i)
		l.changed()
	}
	l.driver.call(ctx, l.driver.nodes[i], l.timeout(), func(ctx context.Context) error {
		return ours.Raise(ctx, goal)
	}, func(err error) {
		switch {
		case errors.Is(err, locker.ErrLost):
			l.vanished(i, ours, err)
		case err != nil:
			absent(err)
		default:
			l.mu.Lock()
			defer l.mu.Unlock()
			s.err = nil
			l.ballot.raised(i)
			l.changed()
		}
	}, absent)
}

// vanished: the node says that it does not have the lease of ours that it was asked about.
func (l *lease) vanished(i int, ours locker.RaisableLease, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := &l.seats[i]; s.lease == ours {
		s.lease, s.err = nil, err
	}
	l.ballot.gone(i)
	l.changed()
}

// waiter is a call that waits for a condition.
type waiter struct {
	met  func() bool // called with lease.mu held
	done chan struct{}
}

// await returns nil when met has returned true, or ctx's error when that ends first; met is not called any
// more then.
func (l *lease) await(ctx context.Context, met func() bool) error {
	l.mu.Lock()
	if met() {
		l.mu.Unlock()
		return nil
	}
	w := &waiter{met, make(chan struct{})}
	l.waiters = append(l.waiters, w)
	l.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.done:
		return nil
	default:
		l.waiters = slices.DeleteFunc(l.waiters, func(other *waiter) bool { return other == w })
		return ctx.Err()
	}
}

// changed wakes those whose condition is met. The caller holds l.mu.
func (l *lease) changed() {
	l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool {
		met := w.met()
		if met {
			close(w.done)
		}
		return met
	})
}
