package redlock

import (
	"cmp"
	"context"
	"time"
)

// answer is the answer of one node to a poll.
type answer[T any] struct {
	value T
	err   error // errWaiting until it has answered
}

// countAnswers returns how many nodes have answered.
func countAnswers[T any](answers []answer[T]) (n int) {
	for _, a := range answers {
		if a.err == nil {
			n++
		}
	}
	return n
}

// poll sends one query, of no claim, to all nodes in parallel, and returns their answers in the
// order of nodes: as soon as enough accepts them, or when all have answered. A time-out is an
// answer with an error. It is timeout, or by default NodeTimeout, and no more than a third of what
// ctx leaves. poll fails if ctx ends first, or d is closed.
func poll[T any](ctx context.Context, d *backend, timeout time.Duration, nodes []*node,
	what func(context.Context, *node) (T, error), enough func([]answer[T]) bool,
) ([]answer[T], error) {
	if err := d.begin(); err != nil {
		return nil, err
	}
	defer d.work.Done()
	if timeout == 0 {
		timeout = cmp.Or(d.timeout, longestTimeout)
		if deadline, ok := ctx.Deadline(); ok { // the rest is for reporting the answers
			timeout = min(timeout, time.Until(deadline)/3)
		}
	}
	answers, calls := make([]answer[T], len(nodes)), make([]call, len(nodes))
	coming := make(chan *query[T], len(nodes))
	for i, n := range nodes {
		answers[i].err = errWaiting
		calls[i] = call{node: n, request: &query[T]{node: n, i: i, ask: what, replies: coming}}
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

// query is the request of a poll to one node.
type query[T any] struct {
	node    *node
	i       int
	ask     func(context.Context, *node) (T, error)
	replies chan<- *query[T]
	answer  answer[T]
	late    bool
}

func (q *query[T]) send(ctx context.Context) (err error) {
	q.answer.value, err = q.ask(ctx, q.node)
	return err
}

func (q *query[T]) onReply(err error, over bool) {
	switch {
	case !over: // send still writes q.answer
		q.late = true
		q.replies <- &query[T]{i: q.i, answer: answer[T]{err: err}}
	case !q.late:
		q.answer.err = err
		q.replies <- q
	}
}
