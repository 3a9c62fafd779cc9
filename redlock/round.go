package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/internal/outage"
)

// request is what a node is asked.
type request interface {
	send(ctx context.Context) error

	// heard takes in the answer, when the request is over. Before that it is told once, with over false, if the request
	// is not over in time.
	heard(err error, over bool)
}

// call is a request on its way to a node.
type call struct {
	request
	node  *node
	round *round

	mu            sync.Mutex // held while heard is told that the call is overdue
	over, overdue bool
}

// round is calls that are made together, under one time-out.
type round struct {
	ctx     context.Context
	cancel  context.CancelFunc
	driver  *Driver
	timeout time.Duration
	calls   []call
	left    atomic.Int32 // calls that are not over
	expiry  *time.Timer
}

// roundContext has the values of the context of a caller, for those who trace requests. It goes on when the caller has heard enough.
type roundContext struct {
	context.Context // Driver.open
	values          context.Context
}

// Value implements context.Context. The first is where package context finds out what this ends with.
func (c roundContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// send makes calls at once, each in another goroutine. The goroutine that calls send has to be one that Close waits for. Each call is
// a round trip of its own. Where several rounds are to share the round trips to a node, this is the place to gather them.
func (d *Driver) send(ctx context.Context, timeout time.Duration, calls []call) {
	if len(calls) == 0 {
		return
	}
	r := &round{driver: d, timeout: timeout, calls: calls}
	r.ctx, r.cancel = context.WithTimeout(roundContext{d.open, ctx}, timeout)
	r.left.Store(int32(len(calls)))
	d.work.Add(len(calls) + 1)
	r.expiry = time.AfterFunc(timeout, r.expire)
	for i := range calls {
		calls[i].round = r
		d.do(&calls[i])
	}
}

// expire tells the calls that are not over that they are late.
func (r *round) expire() {
	defer r.driver.work.Done()
	for i := range r.calls {
		c := &r.calls[i]
		c.mu.Lock()
		if !c.over {
			c.overdue = true
			c.node.overdue()
			c.heard(noAnswer(r.timeout), false)
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
		c.heard(err, true)
		return
	}
	err := c.send(r.ctx)
	deadline, _ := r.ctx.Deadline()
	slow := time.Until(deadline) <= r.timeout/10
	c.node.returned(err, c.end(), slow)
	c.heard(inTime(err, r.timeout), true)
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
	return outage.NoAnswer(fmt.Sprintf("no answer within %v", timeout))
}
