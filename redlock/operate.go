package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// A split vote ends when the losers have released their leases: then the survey is repeated.
const (
	surveys        = 5
	surveyInterval = 10 * time.Millisecond
)

// Inspect implements driver.Operator. It asks all nodes at once, and returns as soon as a
// majority has given the same answer: the lock is held under the same token and metadata, or it is
// not held. Otherwise it returns an [Error], which tells how each node has answered. This happens
// while votes are split. It also happens if, after the grant, the holder has lost the lock at some
// nodes, and got it at others, under larger tokens.
//
// Left is for how long a majority has the lock. If it is not held, Token is the largest that nodes
// have accepted, even in an attempt that failed. Waiters are those of the node that knows most of
// them. The ID of the Holder is empty, because each node has another ID for it.
func (d *backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	quorum := majority(len(d.nodes))
	for try := 1; ; try++ {
		answers, err := poll(ctx, d, 0, d.nodes, func(ctx context.Context, n *node) (driver.State, error) {
			return n.Inspect(ctx, name)
		}, func(says []answer[driver.State]) bool { return survey(says).decided() })
		if err != nil {
			return driver.State{}, err
		}
		says := survey(answers)
		state, agreed := says.verdict()
		if agreed >= quorum {
			return state, nil
		}
		split := countAnswers(says) >= quorum
		if !split || try == surveys || clock.Sleep(ctx, surveyInterval) != nil {
			return driver.State{}, d.disagreement(says.vote) // the votes say more than ctx's error
		}
	}
}

// survey is the state of one lock by each node.
type survey []answer[driver.State]

// decided reports whether a majority agrees, or cannot agree any more.
func (s survey) decided() bool {
	waiting := 0
	for _, a := range s {
		if a.err == errWaiting { //nolint:errorlint // never wrapped
			waiting++
		}
	}
	_, agreed := s.verdict()
	return agreed >= majority(len(s)) || agreed+waiting < majority(len(s))
}

// verdict returns the state on which most nodes agree, and how many do. Nodes agree if the lock is
// held under the same token and metadata, or if it is not held.
func (s survey) verdict() (most driver.State, agreed int) {
	type view struct {
		held     bool
		metadata string
		token    uint64
	}
	says := map[view][]driver.State{}
	var last uint64
	for _, a := range s {
		if a.err != nil {
			continue
		}
		v := view{held: a.value.Held}
		if v.held {
			v.metadata, v.token = a.value.Holder.Metadata, a.value.Token
		} else {
			last = max(last, a.value.Token)
		}
		says[v] = append(says[v], a.value)
	}
	for v, all := range says {
		if len(all) <= agreed {
			continue
		}
		agreed = len(all)
		slices.SortFunc(all, func(a, b driver.State) int { return cmp.Compare(a.Left, b.Left) })
		shortest := all[max(0, agreed-majority(len(s)))].Left // of the majority that has it for the longest
		most = driver.State{Held: v.held, Holder: driver.Participant{Metadata: v.metadata}, Left: shortest, Token: v.token}
		for _, state := range all {
			if at := state.Since; most.Since.IsZero() || !at.IsZero() && at.Before(most.Since) {
				most.Since = at // the earliest
			}
			if len(state.Waiters) > len(most.Waiters) {
				most.Waiters = state.Waiters
			}
		}
	}
	if !most.Held {
		most.Token = last
	}
	return most, agreed
}

// vote returns the vote of node i.
func (s survey) vote(i int) error {
	switch a := s[i]; {
	case a.err != nil:
		return a.err
	case a.value.Held:
		return heldUnder(a.value.Token)
	default:
		return driver.ErrNotHeld
	}
}

// heldUnder is the vote of a node that has granted the lock under this token.
type heldUnder uint64

func (token heldUnder) Error() string { return fmt.Sprintf("held under token %d", uint64(token)) }

// Is reports whether target is ErrHeld.
func (heldUnder) Is(target error) bool { return target == driver.ErrHeld }

// Warnings implements [driver.Warner]. It asks all nodes at once, and returns an error if none of
// them has answered.
func (d *backend) Warnings(ctx context.Context) ([]string, error) {
	answers, err := poll(ctx, d, 0, d.nodes, func(ctx context.Context, n *node) ([]string, error) {
		return n.Warnings(ctx)
	}, nil)
	if err != nil {
		return nil, err
	}
	var warnings []string
	var errs []error
	for i, a := range answers {
		if a.err != nil {
			errs = append(errs, a.err)
		}
		for _, w := range a.value {
			warnings = append(warnings, d.nodes[i].name+": "+w)
		}
	}
	if len(errs) == len(answers) {
		return nil, errors.Join(errs...)
	}
	return warnings, nil
}

// List implements driver.Operator. It returns each name that is held at a majority of the nodes.
// These nodes may name different owners, as while votes are split. It reads the names of one node
// after another, and returns a name when enough nodes have it. A node that does not answer is left
// out. If too many nodes do not answer, the error is an [Error], which tells how each node has
// answered.
func (d *backend) List(prefix string) driver.Pager {
	w := &walk{driver: d, prefix: prefix, votes: make([]error, len(d.nodes)), holders: map[string]holders{}}
	for i := range w.votes {
		w.votes[i] = errWaiting
	}
	return w.page
}

// walk is the state of a listing.
type walk struct {
	driver  *backend
	prefix  string
	node    int          // whose names are being read
	next    driver.Pager // of its names; nil: not begun
	seen    int          // nodes whose names have been read
	votes   []error      // nil: all names of the node have been read; errWaiting: not yet; else why it is left out
	holders map[string]holders
}

// holders are the nodes that have a name. A node may name it twice.
type holders struct{ count, last int }

func (w *walk) page(ctx context.Context) (page driver.Page, err error) {
	found, err := w.nextPage(ctx)
	if err != nil {
		return page, err
	}
	quorum, number := majority(len(w.votes)), w.node+1
	for _, name := range found.value.Names {
		if h := w.holders[name]; h.last != number {
			w.holders[name] = holders{h.count + 1, number}
			if h.count+1 == quorum {
				page.Names = append(page.Names, name)
			}
		}
	}
	if found.err == nil && !found.value.Last {
		return page, nil
	}
	if w.votes[w.node] = found.err; found.err == nil {
		w.seen++
	}
	w.node, w.next = w.node+1, nil
	if w.seen+len(w.votes)-w.node < quorum {
		return driver.Page{}, w.driver.disagreement(func(i int) error { return w.votes[i] })
	}
	page.Last = w.node == len(w.votes)
	return page, nil
}

// nextPage reads a page of the node's names.
func (w *walk) nextPage(ctx context.Context) (a answer[driver.Page], err error) {
	d, n := w.driver, w.driver.nodes[w.node]
	if w.next == nil {
		w.next = n.List(w.prefix)
	}
	next := w.next // not called again after a time-out
	answers, err := poll(ctx, d, 0, []*node{n}, func(ctx context.Context, _ *node) (driver.Page, error) {
		return next(ctx)
	}, nil)
	if err != nil {
		return a, err
	}
	return answers[0], nil
}

// ForceRelease implements driver.Operator. It asks all nodes at once. The hold has ended
// when a majority of the nodes does not have it: then the holder cannot extend it, and its Unlock
// returns [driver.ErrLost]. Only the hold with the Token of shown ends. A node that granted the
// lock only at a later renewal may have a larger token for this hold. There the hold stays until
// the holder learns of the loss, or the hold expires.
func (d *backend) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	// It waits for all answers: the lock is taken sooner if more nodes have released it.
	answers, err := poll(ctx, d, 0, d.nodes, func(ctx context.Context, n *node) (struct{}, error) {
		return struct{}{}, n.forceRelease(ctx, name, shown.Token)
	}, nil)
	if err != nil {
		return err
	}
	quorum := majority(len(d.nodes))
	var ended, free, other int // other: held under another token, or by another owner
	for _, a := range answers {
		switch {
		case a.err == nil:
			ended++
		case errors.Is(a.err, driver.ErrNotHeld):
			free++
		case errors.Is(a.err, driver.ErrHeld):
			other++
		}
	}
	switch {
	case other < quorum && ended+free+other >= quorum && ended > 0:
		return nil
	case free >= quorum:
		return driver.ErrNotHeld
	default:
		err := d.disagreement(func(i int) error { return answers[i].err })
		err.held = other >= quorum
		return err
	}
}

// forceRelease ends the hold under that token at one node.
func (n *node) forceRelease(ctx context.Context, name string, token uint64) error {
	switch state, err := n.Inspect(ctx, name); {
	case err != nil:
		return err
	case !state.Held:
		return driver.ErrNotHeld
	case state.Token != token:
		return heldUnder(state.Token)
	default:
		return n.ForceRelease(ctx, name, state) // state has the node's own ID of the holder
	}
}

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
