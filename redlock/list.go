package redlock

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-locker/locker/driver"
)

// List implements [driver.Lister]: of the names that are held at a majority of the nodes, also while votes are split. It goes through the names of one node
// after the other, as many as a majority cannot do without, and asks all nodes for each name. A node that does not answer is left out. If too many
// do not, the error, an [Error], tells how each has answered.
func (d *Driver) List(prefix string) driver.Pager {
	w := &walk{driver: d, prefix: prefix, done: make([]bool, len(d.nodes)), votes: make([]error, len(d.nodes))}
	return w.page
}

// walk goes through the names of the nodes.
type walk struct {
	driver *Driver
	prefix string
	node   int          // that it is at
	next   driver.Pager // of its names; nil: not begun
	done   []bool       // whose names have all been seen
	votes  []error      // why others are left out
}

// enough is how many nodes have, between them, each name that a majority has.
func (w *walk) enough() int { return len(w.done) - majority(len(w.done)) + 1 }

func (w *walk) page(ctx context.Context) (driver.Page, error) {
	if err := w.driver.begin(); err != nil {
		return driver.Page{}, err
	}
	defer w.driver.work.Done()
	found, err := w.step(ctx)
	if ctx.Err() != nil {
		return driver.Page{}, ctx.Err()
	}
	w.votes[w.node] = err
	page := driver.Page{}
	if err == nil {
		if page.Names, err = w.held(ctx, found.Names); err != nil {
			return page, err
		}
		if !found.Last {
			return page, nil
		}
		w.done[w.node] = true
	}
	return w.leave(page)
}

// step asks the node for a page.
func (w *walk) step(ctx context.Context) (driver.Page, error) {
	d := w.driver
	if w.next == nil {
		lister, ok := d.nodes[w.node].Node.(driver.Lister)
		if !ok {
			return driver.Page{}, fmt.Errorf("%w: a %T does not list locks", driver.ErrUnsupported, d.nodes[w.node].Node)
		}
		w.next = lister.List(w.prefix)
	}
	next := w.next // which nobody calls again if it is not answered in time
	coming := query(ctx, d, d.nodes[w.node:w.node+1], func(ctx context.Context, _ *node) (driver.Page, error) { return next(ctx) })
	select {
	case a := <-coming:
		return a.value, a.err
	case <-ctx.Done():
		return driver.Page{}, ctx.Err()
	}
}

// leave goes on to the next node.
func (w *walk) leave(page driver.Page) (driver.Page, error) {
	seen := 0
	for _, done := range w.done {
		if done {
			seen++
		}
	}
	w.node, w.next = w.node+1, nil
	switch {
	case seen >= w.enough():
		page.Last = true
	case seen+len(w.done)-w.node < w.enough():
		return driver.Page{}, w.driver.disagreement(func(i int) error {
			if i >= w.node {
				return errWaiting
			}
			return w.votes[i]
		})
	}
	return page, nil
}

// lookups is how many names are looked at together.
const lookups = 32

// held returns those of names that a majority holds, and no node whose names have all been seen.
func (w *walk) held(ctx context.Context, names []string) (held []string, err error) {
	says, errs := make([]bool, len(names)), make([]error, len(names))
	places := make(chan struct{}, lookups)
	var looking sync.WaitGroup
	for i, name := range names {
		places <- struct{}{}
		looking.Go(func() {
			says[i], errs[i] = w.majorityHas(ctx, name)
			<-places
		})
	}
	looking.Wait()
	for i, name := range names {
		switch {
		case errs[i] != nil:
			return nil, errs[i]
		case says[i]:
			held = append(held, name)
		}
	}
	return held, nil
}

// majorityHas reports whether name is held at a majority of the nodes, and at none of those that have listed their names.
func (w *walk) majorityHas(ctx context.Context, name string) (bool, error) {
	d := w.driver
	coming := query(ctx, d, d.nodes, func(ctx context.Context, n *node) (driver.State, error) { return n.inspect(ctx, name) })
	heard := make(survey, len(d.nodes))
	holding, answered, listed := 0, 0, false
	for range d.nodes {
		select {
		case a := <-coming:
			heard[a.i] = &a
			if a.err == nil {
				answered++
			}
			if a.err == nil && a.value.Held {
				holding++
				listed = listed || w.done[a.i]
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	quorum := majority(len(d.nodes))
	if answered < quorum {
		return false, d.disagreement(heard.vote)
	}
	return holding >= quorum && !listed, nil
}
