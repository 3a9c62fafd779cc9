package redlock

import (
	"errors"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// How a claim waits.
//
//	enqueue   the first proposals enter the wait list of every node at one position
//	wake      a node that keeps the lock for the claim wakes it; it proposes again (see claim.onWake)
//	yield     some nodes have granted, and the others name an earlier waiter: release, and enqueue again
//	poll      where no wake-up can be relied on: a split vote, or nodes whose wait list it is not in
//
// The position is the median of the nodes' clocks, so all nodes have the same order, whatever the
// clients' clocks show. In a split vote each waiter that has some nodes would wait for the others':
// the later one yields, and each releases what it has when the node time-outs of an attempt are
// over.
//
// Invariants. (1) A lease that is handed back moves to a claim of its own, which releases it until
// the node answers: the vote is gone, and the next proposal has a fresh owner on that node. (2) The
// claim has one entry per wait list; Release withdraws it. (3) Polls back off; their jitter breaks
// the symmetry of waiters that split the vote again.
//
// Lost wake-up: the node calls back after a second or so (see quorum.Node), and the claim proposes
// to it again. Lost reply: the vote is absent, the position is unconfirmed, and the node is polled.

// waitState is what a claim that waits knows beside its votes. claim.mu guards it, and is held by
// the callers of its methods.
type waitState struct {
	claim         *claim
	place         uint64        // the queue position, the same at all nodes
	since         time.Time     // of the first of the granted leases
	yieldedInVain time.Time     // the latest time at which a node granted again what had been yielded
	nextPoll      time.Time     // zero: none is scheduled
	interval      time.Duration // of the poll after that
	wakePending   bool          // a poll was scheduled since the last Ask: the core has to learn when it is due
}

// Bounds of the poll interval, which doubles.
const (
	minPoll       = 5 * time.Millisecond
	maxPoll       = time.Second
	maxQueuedPoll = 5 * time.Second // while a majority has the claim in its wait lists
)

// nextPlace returns the queue position of a waiter that arrives now: the median of the nodes'
// clocks in µs since 1970, or this process's clock while fewer than a majority are known, and 10
// random bits against ties.
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

// pollInterval returns how long the core may wait until it asks again without a wake-up. The caller
// does not hold claim.mu.
func (w *waitState) pollInterval() time.Duration {
	w.claim.mu.Lock()
	defer w.claim.mu.Unlock()
	w.wakePending = false
	if w.nextPoll.IsZero() {
		return maxQueuedPoll
	}
	return max(w.nextPoll.Sub(clock.Now()), 1)
}

// wakeCaller wakes the core, which is between two Asks, if the claim is granted or a poll was
// scheduled.
func (w *waitState) wakeCaller() {
	c := w.claim
	switch {
	case c.decided || c.over:
	case c.ballot.outcome() == won:
		c.commit()
		c.req.Wake()
	case w.wakePending:
		c.req.Wake()
	}
}

// onProposeReply reacts to the reply to r, or to its time-out (over is false): it proposes again
// where a wake-up came meanwhile, yields, hands back a late grant, and schedules the next poll.
func (w *waitState) onProposeReply(r *claimRequest, err error, over bool) {
	c, s := w.claim, r.node
	woken := s.wokenMeanwhile && over
	s.wokenMeanwhile = s.wokenMeanwhile && !over
	s.queued = errors.Is(err, driver.ErrHeld)
	w.wakePending = w.wakePending || c.ballot.outcome() == failed
	switch {
	case s.queued && woken:
		c.propose(func(i int) bool { return i == s.i })
	case c.decided:
	case s.queued && r.earlier:
		s.yielded = false
		if c.ballot.goal == 0 && c.ballot.leases() > 0 && r.sent.After(w.since) && clock.Since(w.yieldedInVain) > c.driver.nodeTimeout(c.req.TTL) {
			w.yield()
		}
	case err == nil:
		if s.yielded {
			s.yielded, w.yieldedInVain = false, clock.Now()
		}
		if c.ballot.votes[s.i].state != granted { // late: its vote is absent already
			w.handBack(s.i)
		} else if c.ballot.leases() == 1 {
			w.since, w.interval, w.nextPoll = clock.Now(), max(minPoll, 2*clock.Since(r.sent)), time.Time{}
		}
	}
	w.schedulePoll()
}

// yield releases the granted leases, because other nodes have an earlier waiter, and proposes again
// at the same position. If the earlier waiter is not in these nodes' wait lists, as after a node
// has lost its data, yielding is in vain, and is not repeated within a node time-out.
func (w *waitState) yield() {
	given := w.handBack(-1)
	for _, i := range given {
		w.claim.nodes[i].yielded = true
	}
	w.claim.propose(func(i int) bool { return slices.Contains(given, i) })
}

// handBack moves the lease of node only, or of all nodes if it is -1, to a claim that releases it.
// It returns these nodes.
func (w *waitState) handBack(only int) (given []int) {
	c := w.claim
	old := c.driver.newClaim(c.req)
	old.values, old.decided, old.until = c.values, true, clock.Now().Add(c.req.TTL)
	for i := range c.nodes {
		s := &c.nodes[i]
		if s.lease == nil || only >= 0 && i != only {
			continue
		}
		old.nodes[i].transition(onGrant, s.lease)
		s.transition(onGone, nil)
		c.ballot.record(i, gone)
		given = append(given, i)
	}
	if only < 0 {
		c.ballot.goal = 0
	}
	old.mu.Lock()
	defer old.mu.Unlock()
	old.releaseAll()
	return given
}

// schedulePoll sets the time of the next poll, unless replies in flight may decide the ballot, or
// the claim is in every wait list and has no lease: then a wake-up is enough.
func (w *waitState) schedulePoll() {
	c, few := w.claim, minority(len(w.claim.nodes))
	none, queued := c.ballot.leases() == 0, true // queued: at each node that has not granted the lease
	for i := range c.nodes {
		s := &c.nodes[i]
		queued = queued && (s.queued || s.lease != nil)
	}
	switch {
	case !w.nextPoll.IsZero(), c.decided, c.over, c.ballot.countIn(asked) > few:
		return
	case none && queued:
		return
	}
	longest := maxPoll
	if none && c.ballot.countIn(absent) <= few {
		longest = maxQueuedPoll
	}
	w.interval = max(w.interval, minPoll)
	w.nextPoll = clock.Now().Add(w.interval/2 + time.Duration(c.driver.random(int64(w.interval/2))))
	w.interval = min(2*w.interval, longest, max(c.req.TTL/8, minPoll))
	w.wakePending = true
}

// pollNodes proposes again when a poll is due: to nodes whose wait list the claim is not in, or in
// a split vote to all. A split vote that has outlasted an attempt is given up.
func (w *waitState) pollNodes() {
	c := w.claim
	if c.decided || w.nextPoll.IsZero() || clock.Now().Before(w.nextPoll) {
		return
	}
	w.nextPoll = time.Time{}
	most := c.driver.nodeTimeout(c.req.TTL) // of the proposals, and as much again for raises
	if c.ballot.goal > 0 {
		most *= 2
	}
	switch {
	case c.ballot.leases() == 0:
		c.propose(func(i int) bool { return !c.nodes[i].queued })
	case clock.Since(w.since) < most:
		c.propose(func(int) bool { return true })
	default: // another waiter may need these nodes for its majority
		w.handBack(-1)
	}
	w.schedulePoll()
}
