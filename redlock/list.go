package redlock

import (
	"context"
	"slices"
	"sync"

	"github.com/go-locker/locker/driver"
)

// List implements driver.Operator. It returns each name that is held at a majority of the nodes.
// These nodes may name different owners, as while votes are split. It reads the names of one node
// after another, until it has read enough nodes to find every name that a majority has. For each
// name it asks all nodes. A node that does not answer is left out. If too many nodes do not answer,
// the error is an [Error], which tells how each node has answered.
func (d *backend) List(prefix string) driver.Pager {
	w := &walk{driver: d, prefix: prefix, votes: make([]error, len(d.nodes)), listed: map[string]bool{}}
	for i := range w.votes {
		w.votes[i] = errWaiting
	}
	return w.page
}

// walk is the state of a listing: minority + 1 nodes have, between them, every name of a majority.
type walk struct {
	driver *backend
	prefix string
	node   int          // whose names are being read
	next   driver.Pager // of its names; nil: not begun
	seen   int          // nodes whose names have been read
	votes  []error      // nil: all names of the node have been read; errWaiting: not yet; else why it is left out
	listed map[string]bool
}

func (w *walk) page(ctx context.Context) (page driver.Page, err error) {
	found, err := w.nextPage(ctx)
	if err != nil {
		return page, err
	}
	if found.err == nil {
		if page.Names, err = w.held(ctx, found.value.Names); err != nil || !found.value.Last {
			return page, err
		}
	}
	if w.votes[w.node] = found.err; found.err == nil {
		w.seen++
	}
	w.node, w.next = w.node+1, nil
	enough := minority(len(w.votes)) + 1 // nodes have, between them, each name that a majority has
	if w.seen+len(w.votes)-w.node < enough {
		return driver.Page{}, w.driver.disagreement(func(i int) error { return w.votes[i] })
	}
	page.Last = w.seen >= enough
	return page, nil
}

// nextPage reads a page of the node's names.
func (w *walk) nextPage(ctx context.Context) (a answer[driver.Page], err error) {
	d, n := w.driver, w.driver.nodes[w.node]
	if w.next == nil {
		o, err := n.operator("does not list locks")
		if err != nil {
			return answer[driver.Page]{err: err}, nil //nolint:nilerr // it is the answer
		}
		w.next = o.List(w.prefix)
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

// maxLookups bounds the names that are inspected in parallel.
const maxLookups = 32

// held returns those of names that a majority holds, and that were not returned before. A node may
// have granted a name after its names were read.
func (w *walk) held(ctx context.Context, names []string) (held []string, err error) {
	names = slices.DeleteFunc(names, func(name string) bool { return w.listed[name] })
	for chunk := range slices.Chunk(names, maxLookups) {
		errs := make([]error, len(chunk)) // driver.ErrNotHeld: not held by a majority
		var lookups sync.WaitGroup
		for i, name := range chunk {
			lookups.Go(func() { errs[i] = w.checkHeld(ctx, name) })
		}
		lookups.Wait()
		for i, name := range chunk {
			switch errs[i] {
			case nil:
				held = append(held, name)
				w.listed[name] = true
			case driver.ErrNotHeld: //nolint:errorlint // from checkHeld
			default:
				return nil, errs[i]
			}
		}
	}
	return held, nil
}

// checkHeld returns nil if name is held at a majority of the nodes, and driver.ErrNotHeld if not.
func (w *walk) checkHeld(ctx context.Context, name string) error {
	d, quorum := w.driver, majority(len(w.votes))
	says, err := d.survey(ctx, name, func(survey) bool { return false })
	if err != nil {
		return err
	}
	holding := 0
	for _, a := range says {
		if a.err == nil && a.value.Held {
			holding++
		}
	}
	switch {
	case countAnswers(says) < quorum:
		return d.disagreement(says.vote)
	case holding < quorum:
		return driver.ErrNotHeld
	default:
		return nil
	}
}
