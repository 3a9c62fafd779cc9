package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/workers"
)

// identify has all nodes say who they are, and what their clocks show, before the first attempt to
// take a lock. It returns when each has answered, has failed, or has not answered in time: then it
// is known whether two are one server, and the place of a waiter is by the nodes' clocks. If no
// majority has answered, the next attempt asks again. Where ctx ends soon it takes a third of what
// is left: a majority may have answered by then.
func (d *Driver) identify(ctx context.Context, ttl time.Duration) error {
	if d.identified.Load() {
		return d.refusal()
	}
	longest := d.nodeTimeout(ttl)
	if deadline, ok := ctx.Deadline(); ok {
		longest = min(longest, time.Until(deadline)/3)
	}
	enough := time.NewTimer(longest)
	defer enough.Stop()
	select {
	case <-d.identifies(ctx, ttl):
	case <-enough.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return d.refusal()
}

// identifies returns what is closed when the nodes have been asked. Those who come meanwhile wait
// for the same answers.
func (d *Driver) identifies(ctx context.Context, ttl time.Duration) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.identifying != nil {
		return d.identifying
	}
	asked := make(chan struct{})
	d.identifying = asked
	d.work.Add(1)
	d.do(workers.Func(func() {
		defer d.work.Done()
		answers, _ := poll(context.WithoutCancel(ctx), d, d.nodeTimeout(ttl), d.nodes, func(ctx context.Context, n *node) (any, error) {
			return nil, d.meet(ctx, n)
		}, nil)
		met := 0
		for _, a := range answers {
			if a.err == nil {
				met++
			}
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.identified.Store(met >= majority(len(d.nodes)) || d.refusal() != nil)
		d.identifying = nil
		close(asked)
	}))
	return asked
}

// meet asks n who it is, unless it has said so. It comes before n's first vote.
func (d *Driver) meet(ctx context.Context, n *node) error {
	if n.identified.Load() {
		return d.refusal()
	}
	id, err := n.Identify(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n.id = id
	n.identified.Store(true)
	for _, other := range d.nodes {
		if other != n && id != "" && other.id == id {
			err := fmt.Errorf("%w: the nodes %s and %s are one server: a majority of one server is none", driver.ErrUnsupported, other.name, n.name)
			d.oneServer.CompareAndSwap(nil, &err)
		}
	}
	return d.refusal()
}

// refusal returns why no lock can be taken, if two nodes are one server.
func (d *Driver) refusal() error {
	if err := d.oneServer.Load(); err != nil {
		return *err
	}
	return nil
}
