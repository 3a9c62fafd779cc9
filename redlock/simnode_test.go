package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
)

// simNode is a contender's client of one server.
type simNode struct {
	node0
	w      *world
	c      *contender
	server *server
	index  int

	mu       sync.Mutex
	proposed uint64     // attempts so far
	asked    uint64     // who it is
	heard    simReading // the latest
}

func (n *simNode) Address() string { return fmt.Sprintf("server-%d", n.index) }

// message is the source of what happens to one message. Its name is not that of any other.
func (n *simNode) message(what, attempt, number uint64) *rand.Rand {
	return n.w.rand(what, uint64(n.c.id), uint64(n.index), attempt, number)
}

// runner sends what the lease of an attempt asks for.
func (n *simNode) runner(attempt uint64) func(context.Context, verb, func(*register, int64) bool) error {
	var messages atomic.Uint64
	return func(ctx context.Context, v verb, script func(r *register, now int64) bool) error {
		if v == raiseIt && n.w.relax.countTogether {
			return nil
		}
		done := false
		_, err := n.send(ctx, n.message(ofVerb[v], attempt, messages.Add(1)), func(first bool, r *register, now int64) {
			if ok := script(r, now); first {
				done = ok
			}
		})
		if err == nil && !done {
			return locker.ErrLost
		}
		return err
	}
}

var ofVerb = [verbs]uint64{propose: ofTake, raiseIt: ofRaise, extendIt: ofExtend, releaseIt: ofRelease}

// fate is what happens to one message and its answer.
type fate struct {
	there, back  time.Duration // how long they take
	lost         int           // 0: neither, 1: the message, 2: the answer
	double       time.Duration // after which the message arrives again; 0: it does not
	heedsContext bool          // the client library gives up when its context ends
	patience     time.Duration // of one that does not
	late         time.Duration // how long after its context's end it returns
}

func (w *world) draw(r *rand.Rand) fate {
	delay := func() time.Duration {
		switch {
		case r.Float64() < w.storm/2: // later than everything
			return time.Duration(r.Int64N(int64(3 * simTTL)))
		case r.Float64() < w.slow: // about as long as a node may take
			return time.Duration(r.Int64N(int64(2 * simTimeout)))
		default:
			return time.Duration((0.1 + r.ExpFloat64()) * float64(time.Millisecond))
		}
	}
	if w.relax.calm {
		short := func() time.Duration { return time.Duration(100_000 + r.Int64N(int64(calmDelay)-100_000)) }
		return fate{there: short(), back: short(), heedsContext: true}
	}
	f := fate{
		there: delay(), back: delay(), heedsContext: r.IntN(2) == 0, late: time.Duration(1 + r.IntN(1000)),
		patience: simTimeout + time.Duration(r.Int64N(int64(simTTL))),
	}
	if r.Float64() < w.storm {
		f.lost = 1 + r.IntN(2)
	}
	if r.Float64() < w.storm {
		f.double = delay()
	}
	return f
}

// send has a script run at the server, perhaps, and perhaps twice. arrived is true beside an error if the
// script may have run. first is false for what is done a second time, whose answer nobody sees.
func (n *simNode) send(
	ctx context.Context, message *rand.Rand, script func(first bool, r *register, now int64),
) (arrived bool, err error) {
	f := n.w.draw(message)
	if f.double > 0 {
		n.w.network.Go(func() {
			time.Sleep(f.double)
			n.server.apply(func(r *register, now int64) { script(false, r, now) })
		})
	}
	up, sent := false, time.Now()
	deliver := func() {
		time.Sleep(f.there)
		if f.lost == 1 {
			return
		}
		var clock int64
		up = n.server.apply(func(r *register, now int64) { clock = now; script(true, r, now) })
		time.Sleep(f.back)
		if up && f.lost == 0 {
			n.hears(sent, clock)
		}
	}
	deadline, _ := ctx.Deadline()
	if f.lost == 0 && (!f.heedsContext || f.there+f.back < time.Until(deadline)) {
		deliver()
		if !up {
			return f.double > 0, errSim
		}
		return true, nil
	}
	n.w.network.Go(deliver)
	if f.heedsContext {
		time.Sleep(time.Until(deadline) + f.late)
	} else {
		time.Sleep(f.patience)
	}
	return true, errSim
}

// simReading is what a server's clock was, in an answer to a request that was sent then.
type simReading struct{ clock, sent time.Time }

func (n *simNode) hears(sent time.Time, clock int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = simReading{n.server.start.Add(n.server.ahead + time.Duration(clock)), sent}
}

// Identify implements quorum.Node.
func (n *simNode) Identify(ctx context.Context) (string, error) {
	n.mu.Lock()
	n.asked++
	message := n.message(ofIdentify, n.asked, 0)
	n.mu.Unlock()
	_, err := n.send(ctx, message, func(bool, *register, int64) {})
	return n.Address(), err
}

// ServerTime implements quorum.Node.
func (n *simNode) ServerTime() (now time.Time, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.heard.clock.Add(time.Since(n.heard.sent)), !n.heard.sent.IsZero()
}

// Candidate implements quorum.Node.
func (n *simNode) Candidate(req driver.Request, place uint64, woken func(bool)) quorum.Candidate {
	n.mu.Lock()
	n.proposed++
	attempt := n.proposed
	n.mu.Unlock()
	l := &registerLease{owner: uint64(n.c.id+1)<<32 + attempt, run: n.runner(attempt)}
	if n.w.relax.oneOwner {
		l.owner = uint64(n.c.id + 1)
	}
	var asked, told atomic.Uint64
	ask := func(ctx context.Context, script func(bool, *register, int64)) (bool, error) {
		return n.send(ctx, n.message(ofTake, attempt, asked.Add(1)), script)
	}
	delay := func() time.Duration {
		if f := n.w.draw(n.message(ofMessage, attempt, told.Add(1))); f.lost == 0 {
			return f.there
		}
		return -1
	}
	p := newPlace(l, req, place, woken, delay, ask)
	p.entry.process = uint64(n.c.id + 1)
	return p
}
