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

// message is what one node is asked, and what its answer means.
type message interface {
	send(ctx context.Context) error
	answered(err error) // when it is over
	missed(err error)   // before that, if it is not over in time
}

// round is requests that are sent to nodes together, under one time-out. It is their context: it has the values of
// a caller's, for those who trace requests, and goes on when the caller has heard enough.
type round struct {
	context.Context // the caller's, without its end
	driver          *Driver
	timeout         time.Duration
	deadline        time.Time

	calls []*call
	left  atomic.Int32 // calls that are not over, and 1 until all are made
	timer *time.Timer
	done  chan struct{}
	late  atomic.Bool
}

// round begins one.
func (d *Driver) round(ctx context.Context, timeout time.Duration) *round {
	r := &round{
		Context: context.WithoutCancel(ctx), driver: d,
		timeout: timeout, deadline: time.Now().Add(timeout), done: make(chan struct{}),
	}
	r.left.Store(1)
	return r
}

func (r *round) Deadline() (time.Time, bool) { return r.deadline, true }
func (r *round) Done() <-chan struct{}       { return r.done }

func (r *round) Err() error {
	if r.late.Load() {
		return context.DeadlineExceeded
	}
	return nil
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

// sent says that all calls of the round have been made.
func (r *round) sent() {
	if r.calls != nil {
		r.timer = time.AfterFunc(time.Until(r.deadline), r.expire)
		r.driver.register(r)
		r.ended()
	}
}

// ended is one of what left counts.
func (r *round) ended() {
	if r.left.Add(-1) == 0 {
		r.timer.Stop()
		r.driver.unregister(r)
	}
}

// expire tells the calls that are not over that it is too late.
func (r *round) expire() {
	if r.late.Swap(true) {
		return
	}
	close(r.done)
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
	err := c.send(c.round)
	overdue := c.end()
	slow := time.Until(c.round.deadline) <= c.round.timeout/10
	c.node.returned(err, overdue, slow)
	c.answered(inTime(err, c.round.timeout))
}

// end says whether the call was overdue.
func (c *call) end() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.overdue
}

// inTime is err, unless it is of the request's own context: the caller's has not ended.
func inTime(err error, timeout time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return noAnswer(timeout)
	}
	return err
}

func noAnswer(timeout time.Duration) error {
	return noanswer.Error(fmt.Sprintf("no answer within %v", timeout))
}
