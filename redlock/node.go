package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-locker/locker"
)

// node is one of the servers, with what is known of its health.
type node struct {
	locker.Proposer
	name string // its address, or else its number

	mu       sync.Mutex
	inFlight int
	silent   int // requests in a row that were not answered in time
}

// patience is after how many unanswered requests in a row a node is asked by one at a time. Where the
// client library does not heed contexts each of them keeps a goroutine and a connection.
const patience = 8

// admit counts a request, or refuses it.
func (n *node) admit() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.silent >= patience && n.inFlight > 0 {
		return fmt.Errorf("not asked: it has not answered the last %d requests", n.silent)
	}
	n.inFlight++
	return nil
}

// overdue: a request has not been answered in time.
func (n *node) overdue() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent++
}

// returned: a request that was admitted has ended. An error that took its time is no answer.
func (n *node) returned(err error, overdue, slow bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inFlight--
	switch answered := err == nil || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost); {
	case answered || !overdue && !slow:
		n.silent = 0
	case !overdue:
		n.silent++
	}
}

// call makes a request to a node in a goroutine of its own. When it is over answered is called with
// its error. If it is not over in time, missed is called first, then; the request may go on and be
// answered later. Neither is called by the goroutine that calls call, which has to be one that Close
// waits for.
func (d *Driver) call(
	ctx context.Context, n *node, timeout time.Duration,
	request func(context.Context) error, answered, missed func(error),
) {
	d.work.Go(func() {
		if err := n.admit(); err != nil {
			answered(err)
			return
		}
		ctx, cancel := context.WithTimeout(merged{d.ctx, ctx}, timeout)
		defer cancel()
		var noticed sync.WaitGroup
		noticed.Add(1)
		stop := context.AfterFunc(ctx, func() {
			defer noticed.Done()
			n.overdue()
			missed(noAnswer(timeout))
		})
		sent := time.Now()
		err := request(ctx)
		overdue := !stop()
		if overdue {
			noticed.Wait()
		}
		n.returned(err, overdue, time.Since(sent) >= timeout*9/10)
		answered(inTime(err, timeout))
	})
}

// inTime is err, unless it is of the request's own context: the caller's has not ended.
func inTime(err error, timeout time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return noAnswer(timeout)
	}
	return err
}

func noAnswer(timeout time.Duration) error {
	return fmt.Errorf("no answer within %v", timeout)
}

// merged ends with Context, which is the Driver's, and has the values of a caller: a request goes on
// when its caller has heard enough.
type merged struct {
	context.Context
	values context.Context
}

// Value prefers what package context looks up to find out when Context ends.
func (m merged) Value(key any) any {
	if v := m.Context.Value(key); v != nil {
		return v
	}
	return m.values.Value(key)
}
