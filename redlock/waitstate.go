package redlock

import (
	"errors"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// waitState is what a claim that waits knows, beside its votes. claim.mu guards it.
type waitState struct {
	claim  *claim
	place  uint64
	since  time.Time     // when the first of the nodes that have granted the lock did so
	inVain time.Time     // when it last got back what it had given back to an earlier waiter, who did not take it
	lookAt time.Time     // when nodes are to be asked though none has woken it; zero: they need not be
	pause  time.Duration // until the look after that
	news   bool          // since the last Ask: the core is to ask again, and to hear when the next look is
}

// Pauses between two looks of a waiter that cannot leave it to the nodes to wake it: some have
// granted the lock, and no majority has; or it is not in the queue of some, which fail. They
// double.
const (
	shortLook   = 5 * time.Millisecond
	longLook    = time.Second
	longestLook = 5 * time.Second // of one that is in the queue of a majority
)

// nextPlace returns the place of a waiter that comes now: the time, in µs since 1970, and 10 random
// bits, so that hardly two have the same. The time is the median of the nodes' clocks, so that a
// client whose own is wrong comes neither early nor late.
func (d *backend) nextPlace() uint64 {
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

// next returns how long the core may wait until it asks again without being woken.
func (w *waitState) next() time.Duration {
	w.claim.mu.Lock()
	defer w.claim.mu.Unlock()
	w.news = false
	if w.lookAt.IsZero() {
		return longestLook
	}
	return max(w.lookAt.Sub(clock.Now()), 1)
}

// tell has the core ask, which does not just now, when the claim is granted, and when there is
// news.
func (w *waitState) tell() {
	c := w.claim
	switch {
	case c.decided || c.over:
	case c.ballot.outcome() == won:
		c.win()
		c.req.Wake()
	case w.news:
		w.news = false
		c.req.Wake()
	}
}

// answered does what follows from the answer to r, or from there being none in time.
func (w *waitState) answered(r *claimRequest, err error, over bool) {
	c, s := w.claim, r.node
	woken := s.woken && over
	s.woken = s.woken && !over
	s.queued = errors.Is(err, driver.ErrHeld)
	w.news = w.news || c.ballot.outcome() == failed
	switch {
	case s.queued && woken:
		c.ask(func(i int) bool { return i == s.i })
	case c.decided:
	case s.queued && r.earlier:
		s.yielded = false
		if c.ballot.goal == 0 && c.ballot.has() > 0 && r.sent.After(w.since) && clock.Since(w.inVain) > c.driver.nodeTimeout(c.req.TTL) {
			w.yield()
		}
	case err == nil:
		if s.yielded {
			s.yielded, w.inVain = false, clock.Now()
		}
		if c.ballot.votes[s.i].state != granted { // it came late
			w.giveBack(s.i)
		} else if c.ballot.has() == 1 {
			w.since, w.pause, w.lookAt = clock.Now(), max(shortLook, 2*clock.Since(r.sent)), time.Time{}
		}
	}
	w.plan()
}

// yield gives back what the nodes have granted, because they have not all the same first waiter,
// and asks them again, in the same place. If the earlier one does not wait there, as where a node
// has forgotten its hold, that is in vain: then it does not yield again within a node's time-out.
func (w *waitState) yield() {
	given := w.giveBack(-1)
	for _, i := range given {
		w.claim.nodes[i].yielded = true
	}
	w.claim.ask(func(i int) bool { return slices.Contains(given, i) })
}

// giveBack ends what node i has granted, or with -1 all, and returns those nodes.
func (w *waitState) giveBack(only int) (given []int) {
	c := w.claim
	old := c.driver.newClaim(c.req)
	old.values, old.decided, old.until = c.values, true, clock.Now().Add(c.req.TTL)
	for i := range c.nodes {
		s := &c.nodes[i]
		if s.lease == nil || only >= 0 && i != only {
			continue
		}
		old.nodes[i].on(onGrant, s.lease)
		s.on(onGone, nil)
		c.ballot.says(i, gone)
		given = append(given, i)
	}
	if only < 0 {
		c.ballot.goal = 0
	}
	old.mu.Lock()
	defer old.mu.Unlock()
	old.end()
	return given
}

// plan sets the time of the next look, if the waiter needs one.
func (w *waitState) plan() {
	c, few := w.claim, minority(len(w.claim.nodes))
	none, queued := c.ballot.has() == 0, true // in the queue of each node that has not granted the lock
	for i := range c.nodes {
		s := &c.nodes[i]
		queued = queued && (s.queued || s.lease != nil)
	}
	switch {
	case !w.lookAt.IsZero(), c.decided, c.over, c.ballot.in(asked) > few: // answers to come may decide
		return
	case none && queued:
		return
	}
	longest := longLook
	if none && c.ballot.in(absent) <= few {
		longest = longestLook
	}
	w.pause = max(w.pause, shortLook)
	w.lookAt = clock.Now().Add(w.pause/2 + time.Duration(c.driver.random(int64(w.pause/2))))
	w.pause = min(2*w.pause, longest, max(c.req.TTL/8, shortLook))
	w.news = true
}

// look asks nodes, if it is time.
func (w *waitState) look() {
	c := w.claim
	if c.decided || w.lookAt.IsZero() || clock.Now().Before(w.lookAt) {
		return
	}
	w.lookAt = time.Time{}
	most := c.driver.nodeTimeout(c.req.TTL) // for the grants, and as much again to raise a token
	if c.ballot.goal > 0 {
		most *= 2
	}
	switch {
	case c.ballot.has() == 0:
		c.ask(func(i int) bool { return !c.nodes[i].queued })
	case clock.Since(w.since) < most:
		c.ask(func(int) bool { return true })
	default: // another may have a majority
		w.giveBack(-1)
	}
	w.plan()
}
