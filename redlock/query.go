package redlock

import (
	"cmp"
	"context"
	"time"
)

// answer is what one of the nodes that were asked says.
type answer[T any] struct {
	value T
	err   error // errWaiting until it has answered
}

// poll asks nodes for something that concerns no claim, all at once, and returns their answers, in
// the order of nodes: when enough says that they decide, or all have answered. One that has not
// answered in time has that for an error. It returns an error if ctx ends first, or d is closed.
func poll[T any](ctx context.Context, d *Driver, timeout time.Duration, nodes []*node,
	what func(context.Context, *node) (T, error), enough func([]answer[T]) bool,
) ([]answer[T], error) {
	if err := d.begin(); err != nil {
		return nil, err
	}
	defer d.work.Done()
	answers, calls := make([]answer[T], len(nodes)), make([]call, len(nodes))
	coming := make(chan func(), len(nodes))
	for i, n := range nodes {
		answers[i].err = errWaiting
		calls[i] = call{node: n, request: &question[T]{node: n, what: what, hear: func(value T, err error) {
			coming <- func() { answers[i] = answer[T]{value, err} }
		}}}
	}
	d.send(ctx, timeout, calls)
	for range nodes {
		select {
		case hear := <-coming:
			if hear(); enough != nil && enough(answers) {
				return answers, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return answers, nil
}

// patience returns how long nodes have for an answer to a call with ctx. It leaves enough of that
// to tell how they have answered.
func (d *Driver) patience(ctx context.Context) time.Duration {
	timeout := cmp.Or(d.timeout, longestTimeout)
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/3)
	}
	return timeout
}

// question is what one node is asked.
type question[T any] struct {
	node  *node
	what  func(context.Context, *node) (T, error)
	hear  func(T, error)
	value T
	late  bool
}

func (q *question[T]) send(ctx context.Context) (err error) {
	q.value, err = q.what(ctx, q.node)
	return err
}

func (q *question[T]) onReply(err error, over bool) {
	switch {
	case !over: // what send does is not to be looked at
		q.late = true
		var none T
		q.hear(none, err)
	case !q.late:
		q.hear(q.value, err)
	}
}
