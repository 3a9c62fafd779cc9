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

// message is what one node is asked, and what its answer means.
type message interface {
	send(ctx context.Context) error
	answered(err error) // when it is over
	missed(err error)   // before that, if it is not over in time
}

// round is requests that are sent to nodes together, under one time-out.
type round struct {
	ctx     context.Context // with the values of the caller's, for those who trace requests; it goes on when the caller has heard enough
	driver  *Driver
	timeout time.Duration

	calls []*call
	left  atomic.Int32 // calls that are not over, and 1 until all are made
	over  func()       // called when none is left
}

// round begins one.
func (d *Driver) round(ctx context.Context, timeout time.Duration) *round {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	r := &round{ctx: own, driver: d, timeout: timeout, over: cancel}
	r.left.Store(1)
	return r
}

// call is one message of a round.
type call struct {
	message
	round *round
	node  *node

	mu            sync.Mutex // held while message.missed runs
	over, overdue bool
}

// call has another goroutine send a message. Its answered and missed are not called by the goroutine that calls
// call, which has to be one that Close waits for.
func (r *round) call(n *node, m message) {
	if r.calls == nil {
		r.calls = make([]*call, 0, len(r.driver.nodes))
	}
	c := &call{message: m, round: r, node: n}
	r.calls = append(r.calls, c)
	r.left.Add(1)
	r.driver.work.Add(1)
	r.driver.do(c)
}

// sent ends the making of calls: from now on the round may expire, by its time-out or by Close.
func (r *round) sent() {
	d, cancel := r.driver, r.over
	if r.calls == nil {
		cancel()
		return
	}
	d.work.Add(1)
	forgetClose := context.AfterFunc(d.open, cancel)
	forgetExpiry := context.AfterFunc(r.ctx, func() {
		defer d.work.Done()
		r.expire()
	})
	r.over = func() {
		if forgetExpiry() {
			d.work.Done()
		}
		forgetClose()
		cancel()
	}
	r.ended()
}

// ended is one of what left counts.
func (r *round) ended() {
	if r.left.Add(-1) == 0 {
		r.over()
	}
}

// expire tells the calls that are not over that it is too late.
func (r *round) expire() {
	for _, c := range r.calls {
		c.mu.Lock()
		if !c.over {
			c.overdue = true
			c.node.overdue()
			c.missed(noAnswer(r.timeout))
		}
		c.mu.Unlock()
	}
}

func (c *call) Run() {
	defer c.round.driver.work.Done()
	defer c.round.ended()
	if err := c.node.admit(); err != nil {
		c.end()
		c.answered(err)
		return
	}
	err := c.send(c.round.ctx)
	overdue := c.end()
	deadline, _ := c.round.ctx.Deadline()
	slow := time.Until(deadline) <= c.round.timeout/10
	c.node.returned(err, overdue, slow)
	c.answered(inTime(err, c.round.timeout))
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
