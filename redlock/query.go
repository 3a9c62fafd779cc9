package redlock

import (
	"cmp"
	"context"
	"time"
)

// answer is what one of the nodes that were asked says.
type answer[T any] struct {
	i     int
	value T
	err   error
}

// query asks nodes for something that concerns no lease, all at once. Each answers once, if need be that it has not answered in time.
func query[T any](ctx context.Context, d *Driver, nodes []*node, what func(context.Context, *node) (T, error)) <-chan answer[T] {
	timeout := cmp.Or(d.timeout, longestTimeout)
	if deadline, ok := ctx.Deadline(); ok { // which leaves enough to tell how the nodes have answered
		timeout = min(timeout, time.Until(deadline)/3)
	}
	return ask(ctx, d, timeout, nodes, what)
}

// ask is query with a time-out of the caller's, whose context only has values.
func ask[T any](ctx context.Context, d *Driver, timeout time.Duration, nodes []*node, what func(context.Context, *node) (T, error)) <-chan answer[T] {
	answers := make(chan answer[T], len(nodes))
	var calls []call
	for i, n := range nodes {
		calls = append(calls, call{node: n, request: &question[T]{node: n, ask: what, answers: answers, answer: answer[T]{i: i}}})
	}
	d.send(ctx, timeout, calls)
	return answers
}

// question is what one node is asked.
type question[T any] struct {
	node    *node
	ask     func(context.Context, *node) (T, error)
	answers chan<- answer[T]
	answer  answer[T]
	late    bool
}

func (q *question[T]) send(ctx context.Context) (err error) {
	q.answer.value, err = q.ask(ctx, q.node)
	return err
}

func (q *question[T]) heard(err error, over bool) {
	switch {
	case !over: // what send does is not to be looked at
		q.late = true
		q.answers <- answer[T]{i: q.answer.i, err: err}
	case !q.late:
		q.answer.err = err
		q.answers <- q.answer
	}
}
