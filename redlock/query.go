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

// answered returns how many of the nodes have.
func answered[T any](answers []answer[T]) (n int) {
	for _, a := range answers {
		if a.err == nil {
			n++
		}
	}
	return n
}

// poll asks nodes for something that concerns no claim, all at once, and returns their answers, in
// the order of nodes: when enough says that they decide, or all have answered. One that has not
// answered in time, which is timeout, or by default what ctx leaves, has that for an error. It
// returns an error if ctx ends first, or d is closed.
func poll[T any](ctx context.Context, d *backend, timeout time.Duration, nodes []*node,
	what func(context.Context, *node) (T, error), enough func([]answer[T]) bool,
) ([]answer[T], error) {
	if err := d.begin(); err != nil {
		return nil, err
	}
	defer d.work.Done()
	if timeout == 0 {
		timeout = cmp.Or(d.timeout, longestTimeout)
		if deadline, ok := ctx.Deadline(); ok { // which leaves enough to tell how the nodes have answered
			timeout = min(timeout, time.Until(deadline)/3)
		}
	}
	answers, calls := make([]answer[T], len(nodes)), make([]call, len(nodes))
	coming := make(chan *question[T], len(nodes))
	for i, n := range nodes {
		answers[i].err = errWaiting
		calls[i] = call{node: n, request: &question[T]{node: n, i: i, what: what, coming: coming}}
	}
	d.send(ctx, timeout, calls)
	for range nodes {
		select {
		case q := <-coming:
			answers[q.i] = q.answer
			if enough != nil && enough(answers) {
				return answers, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return answers, nil
}

// question is what one node is asked.
type question[T any] struct {
	node   *node
	i      int
	what   func(context.Context, *node) (T, error)
	coming chan<- *question[T]
	answer answer[T]
	late   bool
}

func (q *question[T]) send(ctx context.Context) (err error) {
	q.answer.value, err = q.what(ctx, q.node)
	return err
}

func (q *question[T]) onReply(err error, over bool) {
	switch {
	case !over: // what send does is not to be looked at
		q.late = true
		q.coming <- &question[T]{i: q.i, answer: answer[T]{err: err}}
	case !q.late:
		q.answer.err = err
		q.coming <- q
	}
}
