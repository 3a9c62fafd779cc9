package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/internal/noanswer"
)

// How requests reach the nodes.
//
// A round is requests that are sent together, each in a goroutine of its own, with one time-out.
// The round outlives the caller's context: a caller leaves when a majority has answered, and the
// replies of the others still have to be recorded. It carries the values of that context, for
// tracing.
//
// Each request is reported once with over = true, when the client library has returned. If that is
// not in time, it is reported once before, with over = false: its outcome is unknown, and it may
// yet reach the node. A client library that ignores contexts keeps a goroutine and a connection
// until it returns; node.admit bounds how many.

// request is one request to a node.
type request interface {
	send(ctx context.Context) error

	// onReply records the reply when send has returned (over), or that the time-out has passed.
	onReply(err error, over bool)
}

// call is a request in flight.
type call struct {
	request
	node  *node
	round *round

	mu            sync.Mutex // guards what follows; held during onReply(…, false), so that over comes after it
	over, overdue bool
}

// round is calls that are made together, and their context.
type round struct {
	context.Context // ends with Driver.open, or by cancel
	cancel          context.CancelFunc
	values          context.Context // of the caller
	driver          *backend
	timeout         time.Duration
	deadline        time.Time
	calls           []call
	left            atomic.Int32 // calls in flight
	expiry          *time.Timer
}

// Deadline implements context.Context.
func (r *round) Deadline() (time.Time, bool) { return r.deadline, true }

// Value implements context.Context. The embedded context comes first: package context asks it by
// which parent this one is cancelled.
func (r *round) Value(key any) any {
	if v := r.Context.Value(key); v != nil {
		return v
	}
	return r.values.Value(key)
}

// send starts a round. Close has to wait for the calling goroutine. The client library of a node
// may pipeline calls of several rounds.
func (d *backend) send(ctx context.Context, timeout time.Duration, calls []call) {
	if len(calls) == 0 {
		return
	}
	r := &round{values: ctx, driver: d, timeout: timeout, deadline: time.Now().Add(timeout), calls: calls}
	r.Context, r.cancel = context.WithCancel(d.open)
	r.left.Store(int32(len(calls)))
	d.work.Add(len(calls) + 1)
	r.expiry = time.AfterFunc(timeout, r.expire)
	for i := range calls {
		calls[i].round = r
		d.workers.Do(&calls[i])
	}
}

// expire reports the calls in flight as overdue, and cancels them.
func (r *round) expire() {
	defer r.driver.work.Done()
	defer r.cancel()
	for i := range r.calls {
		c := &r.calls[i]
		c.mu.Lock()
		if !c.over {
			c.overdue = true
			c.node.overdue()
			c.onReply(noAnswer(r.timeout), false)
		}
		c.mu.Unlock()
	}
}

// callDone is called at the end of each call. The last one ends the round.
func (r *round) callDone() {
	defer r.driver.work.Done()
	if r.left.Add(-1) > 0 {
		return
	}
	r.cancel()
	if r.expiry.Stop() {
		r.driver.work.Done()
	}
}

// Run implements [workers.Call].
func (c *call) Run() {
	r := c.round
	defer r.callDone()
	if err := c.node.admit(); err != nil {
		c.finish()
		c.onReply(err, true)
		return
	}
	err := c.send(r)
	slow := time.Until(r.deadline) <= r.timeout/10
	c.node.returned(err, c.finish(), slow)
	c.onReply(asNoAnswer(err, r.timeout), true)
}

// finish marks the call as over, and reports whether it was overdue.
func (c *call) finish() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.overdue
}

// asNoAnswer replaces an error of the round's own context: the caller's has not ended.
func asNoAnswer(err error, timeout time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return noAnswer(timeout)
	}
	return err
}

func noAnswer(timeout time.Duration) error {
	return noanswer.Error(fmt.Sprintf("no answer within %v", timeout))
}
