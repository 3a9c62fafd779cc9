package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// lease is one attempt to take the lock, and the tenure that it may become. Requests to the nodes outlive
// the calls that made them: whatever a node answers, and whenever, comes here.
type lease struct {
	driver *Driver
	req    driver.Request
	token  uint64 // that a majority has accepted; 0 if the attempt failed; set before Acquire returns

	mu      sync.Mutex
	seats   []seat // one a node
	ballot  ballot
	decided bool      // the ballot is over
	until   time.Time // by package clock
	over    bool      // released or lost: what a node still grants is given back
	freeBy  time.Time // until when that is tried
	waiters []*waiter

	extensions []*extension // under way
}

// seat is what is known of one node.
type seat struct {
	lease   driver.RaisableLease // that is ours there, or may be; nil if nothing is
	asking  bool                 // a Propose is under way
	freeing bool                 // a Release is under way
	late    bool                 // and has not been answered in time
	freed   bool                 // the node had it, and has confirmed its release
	joins   bool                 // it grants in the tenure, and no Extend has begun after that and succeeded with it
	err     error                // of the latest request
	pausing bool                 // a timer will free it again
	pause   time.Duration        // how long, the last time
}

// waiting says that the node may answer any moment.
func (s *seat) waiting() bool { return (s.asking || s.freeing) && !s.late }

// free says that the node has nothing of ours, and that no request is under way that may change that.
func (s *seat) free() bool { return (s.lease == nil || s.freed) && !s.asking && !s.freeing }

// Token implements [driver.Lease].
func (l *lease) Token() uint64 { return l.token }

// Validity implements [driver.Lease].
func (l *lease) Validity() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until.Sub(clock.Now())
}

func (l *lease) timeout() time.Duration { return l.driver.nodeTimeout(l.req.TTL) }

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	if err := d.begin(); err != nil {
		return nil, err
	}
	defer d.work.Done()
	l := d.lease(req)
	var err error
	decided := l.begin(ctx, &err)
	if interrupted := l.wait(ctx, decided); interrupted != nil {
		err = interrupted
	}
	if err == nil {
		return l, nil
	}
	return l.abandon(), err
}

// lease is an attempt that is about to begin.
func (d *Driver) lease(req driver.Request) *lease {
	return &lease{
		driver: d, req: req, ballot: newBallot(len(d.nodes)), seats: make([]seat, len(d.nodes)),
		until: clock.Now().Add(req.TTL),
	}
}

// begin asks all nodes for the lock. The waiter is for the outcome, an error or none.
func (l *lease) begin(ctx context.Context, err *error) *waiter {
	token := uint64(max(l.driver.clock().UnixMicro(), 1))
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.driver.round(ctx, l.timeout())
	for i := range l.seats {
		l.propose(r, i, token)
	}
	r.sent()
	return l.watch(func() bool { return l.decide(err) })
}

// decide ends the attempt if its outcome is known, and sets err to why it failed. The caller holds l.mu.
func (l *lease) decide(err *error) bool {
	o := l.driver.outcome(&l.ballot)
	switch o {
	case undecided:
		return false
	case won:
		l.token = l.ballot.goal
		for i := range l.seats { // what is granted from now on may come after another's coming and going
			l.seats[i].joins = l.seats[i].asking
		}
	case denied, failed:
		*err = &Error{Votes: l.votes(), held: o == denied}
	}
	l.decided = true
	return true
}

// abandon has what an attempt that failed may have taken, now or later, given back. It returns a Lease whose
// Release says how that goes, or nil if nothing was taken.
func (l *lease) abandon() driver.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decided, l.token = true, 0
	l.end(context.Background())
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
func (l *lease) propose(r *round, i int, token uint64) {
	s := &l.seats[i]
	s.asking, s.late, s.err, s.joins = true, false, nil, l.decided
	r.call(l.driver.nodes[i], &proposeMessage{lease: l, round: r, sent: clock.Now(), i: i, token: token})
}

// proposeMessage asks node i for the lock.
type proposeMessage struct {
	lease *lease
	round *round
	sent  time.Time // or a little before
	i     int
	token uint64
	ours  driver.RaisableLease
}

func (p *proposeMessage) send(ctx context.Context) (err error) {
	p.ours, err = p.lease.driver.nodes[p.i].Propose(ctx, p.lease.req, p.token)
	return err
}

func (p *proposeMessage) missed(err error) {
	l := p.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seats[p.i].late, l.seats[p.i].err = true, err
	if !l.decided {
		l.ballot.absent(p.i)
		l.raise(p.round.ctx)
	}
	p.told(err)
}

func (p *proposeMessage) answered(err error) {
	l := p.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.seats[p.i]
	inTime := !s.late
	s.lease, s.asking, s.late, s.err = p.ours, false, false, err
	if l.over && p.ours != nil {
		l.freeOne(p.i)
	}
	if !l.decided && inTime { // else it is absent already
		switch {
		case err == nil:
			l.ballot.granted(p.i, p.ours.Token())
			// A node that its request reached late has the lock for what is left of the TTL.
			if until := clock.Now().Add(p.ours.Validity()); until.Before(l.until) {
				l.until = until
			}
		case errors.Is(err, driver.ErrHeld):
			l.ballot.refused(p.i)
		default:
			l.ballot.absent(p.i)
		}
		l.raise(p.round.ctx)
	}
	p.told(err)
}

// told tells whoever waits for it what the node says, or that it has not answered. The caller holds lease.mu.
func (p *proposeMessage) told(err error) {
	for _, e := range p.lease.extensions {
		e.joined(p, err)
	}
	p.lease.changed()
}

// raise has the nodes whose token is too small accept the one that the others have. The caller holds l.mu.
func (l *lease) raise(ctx context.Context) {
	nodes := l.driver.raise(&l.ballot)
	if len(nodes) == 0 {
		return
	}
	r := l.driver.round(ctx, l.timeout())
	for _, i := range nodes {
		r.call(l.driver.nodes[i], &raiseMessage{lease: l, round: r, i: i, ours: l.seats[i].lease, goal: l.ballot.goal})
	}
	r.sent()
}

// raiseMessage asks node i to accept a larger token.
type raiseMessage struct {
	lease *lease
	round *round
	i     int
	ours  driver.RaisableLease
	goal  uint64
}

func (r *raiseMessage) send(ctx context.Context) error { return r.ours.Raise(ctx, r.goal) }

func (r *raiseMessage) missed(err error) { r.answered(err) }

func (r *raiseMessage) answered(err error) {
	l := r.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.seats[r.i]
	switch {
	case err == nil:
		s.err = nil
		l.ballot.raised(r.i, r.goal)
	case errors.Is(err, driver.ErrUnsupported): // the goal is too far ahead of the node's clock
		s.err = err
		l.ballot.refusedGoal(r.i, r.goal)
	case errors.Is(err, driver.ErrLost): // the node does not have what it had granted
		if s.lease == r.ours {
			s.lease, s.err = nil, err
		}
		l.ballot.gone(r.i)
	default:
		s.err = err
		l.ballot.absent(r.i)
	}
	if !l.decided {
		l.raise(r.round.ctx)
	}
	l.changed()
}

// waiter is a call that waits for a condition.
type waiter struct {
	met  func() bool // called with lease.mu held
	done chan struct{}
}

// watch begins to wait for met, which may be the case already. The caller holds l.mu.
func (l *lease) watch(met func() bool) *waiter {
	w := &waiter{met, make(chan struct{})}
	if met() {
		close(w.done)
	} else {
		l.waiters = append(l.waiters, w)
	}
	return w
}

// wait returns nil when w's condition has been met, or ctx's error when that ends first; the condition is
// not looked at any more then.
func (l *lease) wait(ctx context.Context, w *waiter) error {
	select {
	case <-w.done:
		return nil
	default:
	}
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
