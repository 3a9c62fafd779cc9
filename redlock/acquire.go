package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/quorum"
)

// Claim implements [driver.Driver].
func (d *Driver) Claim(req driver.Request) driver.Claim {
	l := &lease{driver: d, req: req, seats: make([]seat, len(d.nodes)), ballot: newBallot(len(d.nodes))}
	if req.Wake != nil {
		l.turn = &turn{}
	}
	return l
}

// Ask asks all nodes for the lock. One that waits stands in the queue of every node, in the same
// place: so all nodes have the same first waiter, keep the lock for it after a release, and wake
// it. It has the lock when a majority has granted it. Once it has been asked for, it goes on by
// itself: what nodes say comes in also while nobody asks.
func (l *lease) Ask(ctx context.Context) (next time.Duration, err error) {
	d := l.driver
	if err := d.CheckTTL(l.req.TTL); err != nil {
		return 0, err
	}
	if l.req.Shared {
		return 0, fmt.Errorf("%w: Redlock has no read-write locks", driver.ErrUnsupported)
	}
	if err := d.begin(); err != nil {
		return 0, err
	}
	defer d.work.Done()
	if !l.asked {
		if err := d.identify(ctx, l.req.TTL); err != nil {
			return 0, err
		}
	}
	err = l.wait(ctx, l.askAll(ctx))
	if err != nil && l.turn == nil {
		l.abandon(ctx)
	}
	return longestLook, err
}

// askAll sends what the claim begins with, unless it has begun, and returns a waiter for how it
// stands then.
func (l *lease) askAll(ctx context.Context) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values = ctx
	if !l.asked {
		l.asked, l.until = true, clock.Now().Add(l.req.TTL)
		if l.turn != nil {
			l.turn.place = l.driver.nextPlace()
		}
		token := l.driver.proposal()
		calls := make([]call, 0, len(l.seats))
		for i := range l.seats {
			calls = l.propose(calls, i, token)
		}
		l.send(calls)
	}
	w := &waiter{decide: l.decide}
	l.watch(w)
	return w
}

// proposal returns the token to propose now.
func (d *Driver) proposal() uint64 { return uint64(max(d.clock().UnixMicro(), 1)) }

// decide reports whether it is known how the claim stands, and why it has not won. The caller holds
// l.mu.
func (l *lease) decide() (over bool, err error) {
	outcome := l.ballot.outcome()
	switch {
	case l.decided && l.turn != nil: // it has won while nobody asked
		return true, nil
	case outcome == won:
		l.win()
		return true, nil
	case l.turn != nil:
		err := l.standing()
		return err != nil, err
	case outcome == undecided:
		return false, nil
	}
	l.decided = true
	failed := l.driver.disagreement(l.vote)
	failed.held = outcome == denied
	return true, failed
}

// win makes a hold of what a majority has granted. The caller holds l.mu.
func (l *lease) win() {
	l.decided, l.token = true, l.ballot.goal
	left := l.req.TTL
	for i := range l.seats {
		s := &l.seats[i]
		s.joins = s.lease == nil // what is granted from now on may come after another's coming and going
		if l.ballot.counts(i) {
			left = min(left, s.lease.Validity()) // a request that arrived late has the lock for what is left of the TTL
		}
	}
	l.until = clock.Now().Add(left)
}

// abandon has what was taken, now or later, given back.
func (l *lease) abandon(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values = ctx
	if l.token == 0 {
		l.decided = true
		if l.turn != nil {
			l.until = clock.Now().Add(l.req.TTL) // it may have waited for longer, and have been granted something just now
		}
	}
	l.end()
}

// propose adds the call that asks node i for the lock. The caller holds l.mu.
func (l *lease) propose(calls []call, i int, token uint64) []call {
	s := &l.seats[i]
	s.asking, s.late, s.err, s.joins = true, false, nil, l.decided
	if l.turn != nil && s.place == nil && !l.decided {
		s.place = l.placeAt(i)
	}
	s.proposal = proposeRequest{lease: l, i: i, token: token, place: s.place, ours: s.place, sent: clock.Now()} // of the one before nothing is under way
	if s.place == nil {
		s.proposal.ours = l.driver.nodes[i].Candidate(l.req, 0, nil)
	}
	return append(calls, l.call(i, &s.proposal))
}

// proposeRequest asks node i for the lock.
type proposeRequest struct {
	lease *lease
	i     int
	token uint64
	ours  quorum.Candidate

	place   quorum.Candidate // that is asked for; nil: the attempt does not wait
	earlier bool             // the node has the lock for an earlier waiter
	sent    time.Time
}

func (p *proposeRequest) send(ctx context.Context) (err error) {
	n := p.lease.driver.nodes[p.i]
	if err := p.lease.driver.meet(ctx, n); err != nil {
		return err
	}
	p.earlier, err = p.ours.Propose(ctx, p.token)
	return err
}

func (p *proposeRequest) heard(err error, over bool) {
	l := p.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.seats[p.i]
	if !l.decided && !s.late { // else it is absent already
		p.count(err)
	}
	s.late, s.err = !over, err
	if over {
		s.asking = false
		if p.place == nil || err == nil || l.over && p.place.Known() {
			s.lease, s.place, s.unmet = p.ours, nil, p.place != nil && err != nil
			if err != nil && !p.ours.Known() {
				s.lease = nil
			}
		}
		if l.over {
			l.send(l.free(nil, p.i))
		} else if p.place != nil {
			l.heardInTurn(p, err)
		}
	} else if p.place != nil {
		l.lateInTurn(p)
	}
	l.changed()
}

// count takes the node's vote. The caller holds lease.mu.
func (p *proposeRequest) count(err error) {
	switch l := p.lease; {
	case err == nil:
		l.ballot.granted(p.i, p.ours.Token())
	case errors.Is(err, driver.ErrHeld):
		l.ballot.says(p.i, refused)
	default:
		l.ballot.says(p.i, absent)
	}
}

// raise has the nodes whose token is too small accept the one that the others have. The caller holds l.mu.
func (l *lease) raise() {
	var calls []call
	for _, i := range l.ballot.raise() {
		calls = append(calls, l.call(i, &raiseRequest{lease: l, i: i, ours: l.seats[i].lease, goal: l.ballot.goal}))
	}
	l.send(calls)
}

// raiseRequest asks node i to accept a larger token.
type raiseRequest struct {
	lease *lease
	i     int
	ours  quorum.Candidate
	goal  uint64
}

func (r *raiseRequest) send(ctx context.Context) error { return r.ours.Raise(ctx, r.goal) }

func (r *raiseRequest) heard(err error, _ bool) {
	l := r.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.seats[r.i]
	if s.lease != r.ours {
		return // it was given back
	}
	s.err = err
	switch {
	case err == nil:
		l.ballot.granted(r.i, r.goal)
	case errors.Is(err, driver.ErrUnsupported): // the goal is too far ahead of the node's clock
		l.ballot.refusedGoal(r.i, r.goal)
	case errors.Is(err, driver.ErrLost): // the node does not have what it had granted
		s.lease = nil
		l.ballot.says(r.i, gone)
	default:
		l.ballot.says(r.i, absent)
	}
	l.changed()
}
