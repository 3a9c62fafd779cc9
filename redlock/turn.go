package redlock

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/workers"
)

// turn is what an attempt that waits knows, beside its votes. lease.mu guards it.
type turn struct {
	place  uint64
	told   bool          // that no majority of the nodes answers
	since  time.Time     // when the first of the nodes that have granted the lock did so
	inVain time.Time     // when it last got back what it had given back to an earlier waiter, who did not take it
	timer  *time.Timer   // of look; nil: it was never needed
	armed  bool          // the timer is
	pause  time.Duration // until the look after the next
}

// Pauses between two looks of a waiter that cannot leave it to the nodes to wake it: some have granted the lock, and no majority has;
// or it is not in the queue of some, which fail. They double.
const (
	shortLook   = 5 * time.Millisecond
	longLook    = time.Second
	longestLook = 5 * time.Second // of one that is in the queue of a majority
)

// nextPlace returns the place of a waiter that comes now: the time, in µs since 1970, and 10 random bits, so that hardly two have the same.
// It is the median of what the nodes' clocks are, so that a client whose own is wrong comes neither early nor late.
func (d *Driver) nextPlace() uint64 {
	var clocks []int64
	for _, n := range d.nodes {
		if now, known := n.ServerTime(); known {
			clocks = append(clocks, now.UnixMicro())
		}
	}
	now := d.clock().UnixMicro()
	if len(clocks) >= majority(len(d.nodes)) {
		slices.Sort(clocks)
		now = clocks[len(clocks)/2]
	}
	return uint64(max(now, 0))<<10 | uint64(d.random(1<<10))
}

// placeAt returns the place in the queue of node i, of a new owner.
func (l *lease) placeAt(i int) quorum.Candidate {
	return l.driver.nodes[i].Candidate(l.req, l.turn.place, func(kept bool) { l.woken(i, kept) })
}

// woken takes in that node i has woken the waiter. It does not block.
func (l *lease) woken(i int, kept bool) {
	d := l.driver
	if d.begin() != nil {
		return
	}
	d.do(workers.Func(func() {
		defer d.work.Done()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wake(i, kept)
	}))
}

// wake asks node i. If that keeps the lock for the waiter, the others do so, too, or will in a moment: it asks all. The caller holds l.mu.
func (l *lease) wake(i int, kept bool) {
	if l.over {
		return
	}
	if l.decided && !clock.Now().Before(l.until) { // a hold that nobody has released
		l.end()
		return
	}
	l.seats[i].again = l.seats[i].asking
	if !kept || l.ballot.has() > 0 {
		l.ask(func(k int) bool { return k == i })
		return
	}
	l.ask(func(int) bool { return true })
}

// ask asks those nodes of some for the lock that have not granted it, and are not asked just now. The caller holds l.mu.
func (l *lease) ask(some func(i int) bool) {
	token := l.nextProposal()
	var calls []call
	for i := range l.seats {
		s := &l.seats[i]
		if s.lease != nil || s.asking || !some(i) {
			continue
		}
		if !l.decided {
			l.ballot.says(i, asked)
		}
		calls = l.propose(calls, i, token)
	}
	l.send(calls)
}

// nextProposal returns the token to ask nodes to accept: the hold's, or the largest that others have accepted, or else the time.
func (l *lease) nextProposal() uint64 {
	return cmp.Or(l.token, l.ballot.largest(), l.driver.proposal())
}

// heardInTurn does what follows from an answer to a waiter. The caller holds l.mu.
func (l *lease) heardInTurn(p *proposeRequest, err error) {
	s := &l.seats[p.i]
	again := s.again
	s.again = false
	s.queued = errors.Is(err, driver.ErrHeld)
	inTime := l.decided || l.ballot.votes[p.i].state == granted // a grant that comes late does not count
	switch {
	case s.queued, err == nil && inTime:
		s.failing = time.Time{}
	case s.failing.IsZero():
		s.failing = p.sent
	}
	switch {
	case err == nil && !l.decided:
		l.grantedInTurn(p)
	case s.queued && again:
		l.ask(func(i int) bool { return i == p.i })
	case s.queued && p.earlier && !l.decided:
		s.yielded = false
		l.yieldAfter(p)
	}
	l.plan()
}

// grantedInTurn takes in that a node has granted the lock. The caller holds l.mu.
func (l *lease) grantedInTurn(p *proposeRequest) {
	s, t := &l.seats[p.i], l.turn
	if s.yielded {
		s.yielded, t.inVain = false, clock.Now()
	}
	switch {
	case l.ballot.votes[p.i].state != granted: // it came late
		l.giveBack(p.i)
	case l.ballot.has() == 1:
		t.since, t.pause, t.armed = clock.Now(), max(shortLook, 2*clock.Since(p.sent)), false
	}
}

// yieldAfter yields to the earlier waiter that a node has named in an answer to p, if the others have granted something by then. The caller
// holds l.mu.
func (l *lease) yieldAfter(p *proposeRequest) {
	t := l.turn
	if l.ballot.goal == 0 && l.ballot.has() > 0 && p.sent.After(t.since) && clock.Since(t.inVain) > l.timeout() {
		l.yield()
	}
}

// lateInTurn takes in that a waiter has had no answer in time. The caller holds l.mu.
func (l *lease) lateInTurn(p *proposeRequest) {
	s := &l.seats[p.i]
	s.queued = false
	if s.failing.IsZero() {
		s.failing = p.sent
	}
	l.plan()
}

// yield gives back what the nodes have granted, because they have not all the same first waiter, and asks them again, in the same place.
// If the earlier one does not wait there, as where a node has forgotten its hold, that is in vain: then it does not yield again within a
// node's time-out. The caller holds l.mu.
func (l *lease) yield() {
	given := l.giveBack(-1)
	for _, i := range given {
		l.seats[i].yielded = true
	}
	l.ask(func(i int) bool { return slices.Contains(given, i) })
}

// giveBack ends what node i has granted, or with -1 all, and returns those nodes. The caller holds l.mu.
func (l *lease) giveBack(only int) (given []int) {
	old := &lease{driver: l.driver, req: l.req, values: l.values, seats: make([]seat, len(l.seats)), decided: true, until: clock.Now().Add(l.req.TTL)}
	for i := range l.seats {
		s := &l.seats[i]
		if s.lease == nil || only >= 0 && i != only {
			continue
		}
		old.seats[i].lease, s.lease = s.lease, nil
		l.ballot.says(i, gone)
		given = append(given, i)
	}
	if only < 0 {
		l.ballot.goal = 0
	}
	old.mu.Lock()
	defer old.mu.Unlock()
	old.end()
	return given
}

// plan sets the timer for the next look, if the waiter needs one. The caller holds l.mu.
func (l *lease) plan() {
	t := l.turn
	minority := len(l.seats) - majority(len(l.seats))
	switch {
	case t.armed, l.decided, l.over, l.ballot.in(asked) > minority: // answers to come may decide
		return
	case l.ballot.has() == 0 && !l.outOfQueue():
		return
	}
	longest := longLook
	if l.ballot.has() == 0 && l.ballot.in(absent) <= minority {
		longest = longestLook
	}
	t.pause = max(t.pause, shortLook)
	pause := t.pause/2 + time.Duration(l.driver.random(int64(t.pause/2)))
	t.pause = min(2*t.pause, longest, max(l.req.TTL/8, shortLook))
	t.armed = true
	if t.timer == nil {
		t.timer = time.AfterFunc(pause, l.look)
	} else {
		t.timer.Reset(pause)
	}
}

// outOfQueue reports whether the waiter is not in the queue of some node. The caller holds l.mu.
func (l *lease) outOfQueue() bool {
	for i := range l.seats {
		if s := &l.seats[i]; s.lease == nil && !s.queued {
			return true
		}
	}
	return false
}

// look asks nodes because it is time.
func (l *lease) look() {
	if l.driver.begin() != nil {
		return
	}
	defer l.driver.work.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.turn
	t.armed = false
	if l.decided || l.over {
		return
	}
	most := l.timeout() // for the grants, and as much again to raise a token
	if l.ballot.goal > 0 {
		most *= 2
	}
	switch {
	case l.ballot.has() == 0:
		l.ask(func(i int) bool { return !l.seats[i].queued })
	case clock.Since(t.since) < most:
		l.ask(func(int) bool { return true })
	default: // another may have a majority
		l.giveBack(-1)
	}
	l.plan()
	l.changed()
}

// standing returns why a claim that waits has not won, or nil if that is not known. The caller
// holds l.mu.
func (l *lease) standing() error {
	failing := 0
	for i := range l.seats {
		if !l.seats[i].failing.IsZero() {
			failing++
		}
	}
	minority := len(l.seats) - majority(len(l.seats))
	switch outcome := l.ballot.outcome(); {
	case failing > minority, outcome == failed: // or nodes accept no common token
		return l.driver.disagreement(l.vote)
	case outcome == denied:
		return driver.ErrHeld
	default:
		return nil
	}
}

// tell wakes a claim that waits and that nobody asks just now, when it has won, and when no
// majority answers any more. The caller holds l.mu.
func (l *lease) tell() {
	t := l.turn
	if t == nil || l.decided || l.over || len(l.waiters) > 0 {
		return
	}
	if l.ballot.outcome() == won {
		l.win()
		l.req.Wake()
		return
	}
	err := l.standing()
	failing := err != nil && !errors.Is(err, driver.ErrHeld)
	if failing && !t.told {
		l.req.Wake()
	}
	t.told = failing
}
