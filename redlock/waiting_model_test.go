package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/workers"
)

// queueWorld is one history of two waiters at three nodes: the Driver as it is, over the model of a node. What is under way arrives when the
// exploration says so. It knows no time but that the time of a round passes, and a claim expires, when nothing else happens.
type queueWorld struct {
	*queueCase
	queueBudget
	nodes   [exNodes]register
	parties [2]*party
	flights []flight // in the order in which they were sent

	owners  uint64
	nudges  int // so often nothing happened until a waiter looked of itself
	largest uint64
	excused bool // a fault may have changed the order
	follows bool // the second came when a majority had the first in its queue
	bad     string
}

// queueBudget is how often a history may differ from the most likely one, in which all arrives in the order in which it was sent.
type queueBudget struct {
	deviations int // something arrives first that was sent later, or a waiter looks meanwhile
	drops      int // a request or a message is lost
	losses     int // an answer is lost
	misses     int // a request is given up, and answered later
	lates      int // the time of a round is over, though something is under way
}

// party is one of the waiters.
type party struct {
	world  *queueWorld
	number int
	driver *Driver
	lease  *lease
	wait   *waiter
	looks  int // since the first grant of the round
	holds  bool
	over   bool // its hold is
	since  time.Time
}

// flight is something under way.
type flight struct {
	what  flightKind
	party *party
	node  int
	call  *call
	err   error // of an answer
}

type flightKind uint8

const (
	aRequest flightKind = iota
	anAnswer
	aMessage
	holdEnds
	firstEnds // the hold that there was before, at one node
)

const firstOwner = 1 << 40

func newQueueWorld(x *queueCase) *queueWorld {
	w := &queueWorld{queueCase: x, queueBudget: x.queueBudget}
	for i := range w.nodes {
		w.nodes[i] = register{known: true, last: x.last[i]}
		if x.held {
			w.nodes[i].take(0, firstOwner, 1, 5)
		}
	}
	for a := range w.parties {
		w.parties[a] = &party{world: w, number: a}
		w.begin(w.parties[a], x.drivers[a])
		for x.after && a == 0 && len(w.flights) > 0 { // nothing deviates until then
			w.arrive(0)
		}
	}
	w.follows = x.after
	for i := range w.nodes {
		if x.held {
			w.flights = append(w.flights, flight{what: firstEnds, node: i})
		}
	}
	return w
}

// begin has a party begin to wait.
func (w *queueWorld) begin(p *party, d *Driver) {
	p.driver = d
	for i := range d.nodes {
		d.nodes[i].Proposer = &queueNode{party: p, i: i}
	}
	p.attach()
	never := time.AfterFunc(time.Hour, func() {})
	never.Stop()
	place := uint64(p.number + 1)
	if w.flaw.wrongPlaces {
		place = uint64(2 - p.number)
	}
	t := &turn{place: place, answered: func(error) {}, timer: never}
	p.lease, p.wait = d.attempt(context.Background(), driver.Request{Name: "x", TTL: time.Hour}, t)
}

// attach has what the Driver sends be under way.
func (p *party) attach() {
	p.driver.do = func(c workers.Call) {
		if m, ok := c.(*call); ok {
			i := slices.Index(p.driver.nodes, m.node)
			p.world.flights = append(p.world.flights, flight{what: aRequest, party: p, node: i, call: m})
			return
		}
		c.Run()
	}
}

// arrive has something arrive.
func (w *queueWorld) arrive(k int) {
	f := w.flights[k]
	w.flights = slices.Delete(w.flights, k, k+1)
	switch n := &w.nodes[f.node]; f.what {
	case aRequest:
		f.what, f.err = anAnswer, f.call.send(f.call.round)
		w.flights = append(w.flights, f)
	case anAnswer:
		f.call.heard(f.err, true)
		f.call.round.ended()
	case aMessage:
		f.party.lease.woken(f.node, true)
	case holdEnds:
		f.party.end()
	case firstEnds:
		n.release(0, firstOwner, n.last, false)
	}
	w.check()
}

// drop loses something.
func (w *queueWorld) drop(k int) {
	f := w.flights[k]
	w.flights = slices.Delete(w.flights, k, k+1)
	w.excused = true
	if f.call != nil {
		f.call.heard(errRefused, true)
		f.call.round.ended()
	}
	w.check()
}

// miss gives a request up, whose answer comes later.
func (w *queueWorld) miss(k int) {
	w.excused = true
	w.flights[k].call.heard(noAnswer(time.Second), false)
	w.check()
}

// look has a waiter look, in time or when that of a round is over.
func (w *queueWorld) look(p *party, late bool) {
	p.looks++
	if late {
		p.lease.turn.since = time.Time{}
	}
	p.lease.look()
	w.check()
}

// nudge has all who wait look whether they have missed something.
func (w *queueWorld) nudge() {
	w.nudges++
	for i := range w.nodes {
		if w.nudges%2 == 0 {
			w.nodes[i].keptUntil = 0
		}
		for _, p := range w.parties {
			if p.waits() && p.lease.seats[i].queued {
				p.lease.woken(i, false)
			}
		}
	}
	w.check()
}

func (p *party) waits() bool { return !p.holds && !p.over }

func (p *party) end() {
	p.holds, p.over = false, true
	p.lease.mu.Lock()
	defer p.lease.mu.Unlock()
	p.lease.end()
}

// check looks at what has come of an event.
func (w *queueWorld) check() {
	for _, p := range w.parties {
		if p == nil || p.lease == nil {
			continue
		}
		if t := p.lease.turn; !t.since.Equal(p.since) {
			p.since, p.looks = t.since, 0
		}
		if p.waits() && met(p.wait) {
			w.won(p)
		}
	}
}

func (w *queueWorld) won(p *party) {
	other := w.parties[1-p.number]
	switch {
	case p.wait.err != nil:
		w.bad = p.wait.err.Error()
	case other != nil && other.holds:
		w.bad = bothHold
	case p.lease.token <= w.largest:
		w.bad = smaller
	case p.number == 1 && w.follows && !w.excused && other.waits():
		w.bad = overtakes
	}
	w.largest = max(w.largest, p.lease.token)
	p.holds = true
	w.flights = append(w.flights, flight{what: holdEnds, party: p})
}

// What must not happen.
const (
	bothHold  = "both hold the lock"
	overtakes = "the second is granted the lock before the first"
	stuck     = "a waiter is not granted the lock"
)

// close ends what a history has begun.
func (w *queueWorld) close() {
	for _, f := range w.flights {
		if f.call != nil {
			f.call.round.ended()
		}
	}
}

// queueNode is a party's client of a node.
type queueNode struct {
	node0
	party *party
	i     int
}

func (n *queueNode) Address() string { return "" }

func (n *queueNode) Propose(context.Context, driver.Request, uint64) (driver.RaisableLease, error) {
	panic("not used")
}

func (n *queueNode) Wait(_ driver.Request, place uint64, _ func(bool)) driver.WaitingLease {
	w := n.party.world
	w.owners++
	p := &queuePlace{node: n, entry: inQueue{owner: uint64(n.party.number+1)<<32 + w.owners, place: place, process: uint64(n.party.number + 1)}}
	p.registerLease = &registerLease{owner: p.entry.owner, run: n.run, until: time.Now().Add(time.Hour)}
	p.entry.tell = func() {
		w.flights = append(w.flights, flight{what: aMessage, party: n.party, node: n.i})
	}
	return p
}

func (n *queueNode) run(_ context.Context, _ verb, script func(r *register, now int64) bool) error {
	if script(&n.party.world.nodes[n.i], 0) {
		return nil
	}
	return locker.ErrLost
}

// queuePlace is a place in the queue of a node.
type queuePlace struct {
	*registerLease
	node  *queueNode
	entry inQueue
	known bool
}

func (p *queuePlace) Propose(_ context.Context, token uint64) (earlier bool, err error) {
	w := p.node.party.world
	if w.dead > p.node.i {
		return false, errRefused
	}
	p.known = true
	a := w.nodes[p.node.i].wait(0, p.entry, 1, token)
	if !a.granted {
		return a.earlier, driver.ErrHeld
	}
	p.token.Store(a.accepted)
	return false, nil
}

func (p *queuePlace) Known() bool { return p.known }
