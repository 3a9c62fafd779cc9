package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// simNode is a contender's client of one server.
type simNode struct {
	w      *world
	c      *contender
	server *server
	index  int

	mu       sync.Mutex
	proposed uint64 // attempts so far
}

// Acquire is not what redlock asks of a node.
func (n *simNode) Acquire(context.Context, driver.Request) (driver.Lease, error) { panic("not used") }

func (n *simNode) Guarantees() locker.Guarantees { return nil }
func (n *simNode) Close() error                  { return nil }
func (n *simNode) Address() string               { return fmt.Sprintf("server-%d", n.index) }

// Propose implements driver.Proposer.
func (n *simNode) Propose(ctx context.Context, req driver.Request, token uint64) (driver.RaisableLease, error) {
	n.mu.Lock()
	n.proposed++
	l := &simLease{node: n, attempt: n.proposed, until: time.Now().Add(req.TTL)}
	n.mu.Unlock()
	l.owner = uint64(n.c.id+1)<<32 + l.attempt
	if n.w.relax.oneOwner {
		l.owner = uint64(n.c.id + 1)
	}
	var granted bool
	var accepted uint64
	arrived, err := n.send(ctx, n.message(ofTake, l.attempt, 0), func(first bool, r *register, now int64) {
		g, a := r.take(now, l.owner, int64(req.TTL), token)
		if first {
			granted, accepted = g, a
		}
	})
	switch {
	case err != nil && arrived:
		return l, err
	case err != nil:
		return nil, err
	case granted:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.token = accepted
		return l, nil
	default:
		return nil, locker.ErrHeld
	}
}

// message is the source of what happens to one message. Its name is not that of any other.
func (n *simNode) message(what, attempt, number uint64) *rand.Rand {
	return n.w.rand(what, uint64(n.c.id), uint64(n.index), attempt, number)
}

// simLease is the client's side of a grant.
type simLease struct {
	node           *simNode
	owner, attempt uint64
	until          time.Time // by its grant

	mu       sync.Mutex
	token    uint64
	messages uint64
	released bool // sent before
}

func (l *simLease) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

func (l *simLease) Validity() time.Duration { return time.Until(l.until) }

func (l *simLease) send(ctx context.Context, what uint64, script func(r *register, now int64) bool) error {
	l.mu.Lock()
	l.messages++
	message := l.node.message(what, l.attempt, l.messages)
	l.mu.Unlock()
	done := false
	_, err := l.node.send(ctx, message, func(first bool, r *register, now int64) {
		if ok := script(r, now); first {
			done = ok
		}
	})
	if err == nil && !done {
		return locker.ErrLost
	}
	return err
}

func (l *simLease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.send(ctx, ofExtend, func(r *register, now int64) bool { return r.extend(now, l.owner, int64(ttl)) })
}

func (l *simLease) Release(ctx context.Context) error {
	l.mu.Lock()
	token, again := l.token, l.released
	l.released = true
	l.mu.Unlock()
	return l.send(ctx, ofRelease, func(r *register, now int64) bool { return r.release(now, l.owner, token, again) })
}

func (l *simLease) Raise(ctx context.Context, token uint64) error {
	var err error
	if !l.node.w.relax.countTogether {
		err = l.send(ctx, ofRaise, func(r *register, now int64) bool { return r.raise(now, l.owner, token) })
	}
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.token = token
	}
	return err
}

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
	up := false
	deliver := func() {
		time.Sleep(f.there)
		if f.lost == 1 {
			return
		}
		up = n.server.apply(func(r *register, now int64) { script(true, r, now) })
		time.Sleep(f.back)
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
