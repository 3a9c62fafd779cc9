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

// request is what a node is asked.
type request interface {
	send(ctx context.Context) error

	// onReply takes in the answer, when the request is over. Before that it is told once, with over
	// false, if the request is not over in time.
	onReply(err error, over bool)
}

// call is a request on its way to a node.
type call struct {
	request
	node  *node
	round *round

	mu            sync.Mutex // held while onReply is told that the call is overdue
	over, overdue bool
}

// round is calls that are made together, under one time-out, and their context. That has the values
// of the context of a caller, for those who trace requests. It goes on when the caller has heard
// enough. One timer ends it and tells the calls.
type round struct {
	context.Context // ends with Driver.open, or by cancel
	cancel          context.CancelFunc
	values          context.Context
	driver          *backend
	timeout         time.Duration
	deadline        time.Time
	calls           []call
	left            atomic.Int32 // calls that are not over
	expiry          *time.Timer
}

// Deadline implements context.Context.
func (r *round) Deadline() (time.Time, bool) { return r.deadline, true }

// Value implements context.Context. The first is where package context finds out what this ends
// with.
func (r *round) Value(key any) any {
	if v := r.Context.Value(key); v != nil {
		return v
	}
	return r.values.Value(key)
}

// send makes calls at once, each in another goroutine. The goroutine that calls send has to be one
// that Close waits for. A node may have calls of several rounds share a round trip.
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
		d.do(&calls[i])
	}
}

// expire tells the calls that are not over that they are late, and ends them.
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

// ended counts a call that is over.
func (r *round) ended() {
	defer r.driver.work.Done()
	if r.left.Add(-1) > 0 {
		return
	}
	r.cancel()
	if r.expiry.Stop() {
		r.driver.work.Done()
	}
}

// Run makes the call.
func (c *call) Run() {
	r := c.round
	defer r.ended()
	if err := c.node.admit(); err != nil {
		c.end()
		c.onReply(err, true)
		return
	}
	err := c.send(r)
	slow := time.Until(r.deadline) <= r.timeout/10
	c.node.returned(err, c.end(), slow)
	c.onReply(inTime(err, r.timeout), true)
}

// end ends the call, and returns whether it was overdue.
func (c *call) end() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.overdue
}

// inTime returns err, unless it is of the request's own context: the caller's has not ended.
func inTime(err error, timeout time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return noAnswer(timeout)
	}
	return err
}

func noAnswer(timeout time.Duration) error {
	return noanswer.Error(fmt.Sprintf("no answer within %v", timeout))
}
