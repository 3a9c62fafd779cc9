package redlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/quorum"
)

// lease is one attempt to take the lock, and the hold that it may become. Requests to the nodes outlive
// the calls that made them: whatever a node answers, and whenever, comes here.
type lease struct {
	driver *Driver
	req    driver.Request
	asked  bool   // all nodes have been asked
	token  uint64 // that a majority has accepted; 0 if the attempt failed; set before Ask returns

	mu      sync.Mutex
	values  context.Context // of the latest call, for those who trace requests
	seats   []seat          // one a node
	ballot  ballot
	decided bool      // the ballot is over
	until   time.Time // by package clock
	over    bool      // released or lost: what a node still grants is given back
	freeBy  time.Time // until when that is tried
	turn    *turn     // nil: it does not wait
	waiters []*waiter // of the calls under way
}

// seat is what is known of one node.
type seat struct {
	lease   quorum.Candidate // that is ours there, or may be; nil if nothing is
	asking  bool             // a Propose is under way
	freeing bool             // a Release is under way
	late    bool             // and has not been answered in time
	freed   bool             // the node had it, and has confirmed its release
	joins   bool             // it grants during the hold, and no Extend has begun after that and succeeded with it
	err     error            // of the latest request
	pausing bool             // a timer will free it again
	pause   time.Duration    // how long, the last time

	place   quorum.Candidate // in the node's queue, of an attempt that waits or a hold that has waited; nil: there is none, or it was granted
	queued  bool             // the node has confirmed it
	again   bool             // the node has woken it while it was asked
	failing time.Time        // since when the node does not answer; zero: it does
	yielded bool             // it was given back to an earlier waiter, and the node has not named one since
	unmet   bool             // lease is a place that was not granted

	proposal proposeRequest // the latest, and so of the one below
	release  releaseRequest
}

// waiting reports whether the node may answer any moment.
func (s *seat) waiting() bool { return (s.asking || s.freeing) && !s.late }

// busy reports whether the node has something of ours, or a request is under way that may change that.
func (s *seat) busy() bool { return s.lease != nil || s.asking || s.freeing }

// busy reports whether any node has something of the lease, or may come to have it. The caller holds l.mu.
func (l *lease) busy() bool {
	for i := range l.seats { // none is copied: its requests are under way
		if l.seats[i].busy() {
			return true
		}
	}
	return false
}

// Token implements [driver.Lease].
func (l *lease) Token() uint64 { return l.token }

// Validity implements [driver.Lease].
func (l *lease) Validity() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until.Sub(clock.Now())
}

func (l *lease) timeout() time.Duration { return l.driver.nodeTimeout(l.req.TTL) }

// vote returns what node i has said to an attempt that has failed, or to a release. The caller holds l.mu.
func (l *lease) vote(i int) error {
	switch s := &l.seats[i]; {
	case l.over && !s.busy() && !s.freed:
		return errAbsent
	case s.err == nil && (s.asking || s.freeing):
		return errWaiting
	default:
		return s.err
	}
}

// send makes calls. The caller holds l.mu, so that answers come in later.
func (l *lease) send(calls []call) { l.driver.send(l.values, l.timeout(), calls) }

// call returns a request to node i.
func (l *lease) call(i int, r request) call { return call{node: l.driver.nodes[i], request: r} }

// waiter is a call that waits until it is known how it goes.
type waiter struct {
	decide func() (over bool, err error) // called with lease.mu held, until it is over
	err    error
	done   chan struct{} // closed when err is set
}

// settled reports whether w's call is over.
func (w *waiter) settled() bool {
	over, err := w.decide()
	if over {
		w.err = err
		close(w.done)
	}
	return over
}

// watch begins to wait for w, which may be over already. The caller holds l.mu.
func (l *lease) watch(w *waiter) {
	w.done = make(chan struct{})
	if !w.settled() {
		l.waiters = append(l.waiters, w)
	}
}

// wait returns w's error, or ctx's if that ends first. Then nothing is decided for w any more.
func (l *lease) wait(ctx context.Context, w *waiter) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiters, w); i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
		return ctx.Err()
	}
	return w.err
}

// changed does what follows from what a node has said. The caller holds l.mu.
func (l *lease) changed() {
	if !l.decided {
		l.raise()
	}
	l.tell()
	l.waiters = slices.DeleteFunc(l.waiters, (*waiter).settled)
}
