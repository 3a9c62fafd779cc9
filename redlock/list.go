package redlock

import (
	"context"
	"fmt"
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
	w := &walk{driver: d, prefix: prefix, votes: make([]error, len(d.nodes)), told: map[string]bool{}}
	for i := range w.votes {
		w.votes[i] = errWaiting
	}
	return w.page
}

// walk goes through the names of the nodes.
type walk struct {
	driver *backend
	prefix string
	node   int          // that it is at
	next   driver.Pager // of its names; nil: not begun
	votes  []error      // nil: all names of the node have been seen; errWaiting: not yet; else why it is left out
	told   map[string]bool
}

func (w *walk) page(ctx context.Context) (page driver.Page, err error) {
	found, err := w.ask(ctx)
	if err != nil {
		return page, err
	}
	if found.err == nil {
		if page.Names, err = w.held(ctx, found.value.Names); err != nil || !found.value.Last {
			return page, err
		}
	}
	w.votes[w.node] = found.err
	w.node, w.next = w.node+1, nil
	seen := 0
	for _, err := range w.votes {
		if err == nil {
			seen++
		}
	}
	enough := minority(len(w.votes)) + 1 // nodes have, between them, each name that a majority has
	if seen+len(w.votes)-w.node < enough {
		return driver.Page{}, w.driver.disagreement(func(i int) error { return w.votes[i] })
	}
	page.Last = seen >= enough
	return page, nil
}

// ask asks the node for a page of its names.
func (w *walk) ask(ctx context.Context) (a answer[driver.Page], err error) {
	d, n := w.driver, w.driver.nodes[w.node]
	if w.next == nil {
		lister, ok := n.Node.(driver.Operator)
		if !ok {
			a.err = fmt.Errorf("%w: a %T does not list locks", driver.ErrUnsupported, n.Node)
			return a, nil
		}
		w.next = lister.List(w.prefix)
	}
	next := w.next // which nobody calls again if it is not answered in time
	answers, err := poll(ctx, d, 0, []*node{n}, func(ctx context.Context, _ *node) (driver.Page, error) {
		return next(ctx)
	}, nil)
	if err != nil {
		return a, err
	}
	return answers[0], nil
}

// lookups is how many names are looked at together.
const lookups = 32

// held returns those of names that a majority holds, and that were not told before. A node that
// did not have such a name when it was asked for its names may have come to have it.
func (w *walk) held(ctx context.Context, names []string) (held []string, err error) {
	names = slices.DeleteFunc(names, func(name string) bool { return w.told[name] })
	errs := make([]error, len(names)) // driver.ErrNotHeld: it is to be left out
	for first := 0; first < len(names); first += lookups {
		var looking sync.WaitGroup
		for i, name := range names[first:min(first+lookups, len(names))] {
			looking.Go(func() { errs[first+i] = w.look(ctx, name) })
		}
		looking.Wait()
	}
	for i, name := range names {
		switch errs[i] {
		case nil:
			held = append(held, name)
			w.told[name] = true
		case driver.ErrNotHeld: //nolint:errorlint // from look
		default:
			return nil, errs[i]
		}
	}
	return held, nil
}

// look returns nil if name is held at a majority of the nodes, and driver.ErrNotHeld if not.
func (w *walk) look(ctx context.Context, name string) error {
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
	case answered(says) < quorum:
		return d.disagreement(says.vote)
	case holding < quorum:
		return driver.ErrNotHeld
	default:
		return nil
	}
}
