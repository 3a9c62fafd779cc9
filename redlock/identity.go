package redlock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/workers"
)

// identities is what the nodes have said of who they are.
type identities struct {
	known atomic.Bool           // a majority has answered
	same  atomic.Pointer[error] // which two nodes are one server; nil: not known of any

	mu     sync.Mutex
	asking chan struct{} // closed when the nodes have been asked; nil: that is not under way
	nodes  map[string]*node
}

// identify has all nodes say who they are, and what their clocks show, before the first attempt to
// take a lock. It returns when each has answered, has failed, or has not answered in time: then it
// is known whether two are one server, and the place of a waiter is by the nodes' clocks. If no
// majority has answered, the next attempt asks again. Where ctx ends soon it takes a third of what
// is left: a majority may have answered by then.
func (d *backend) identify(ctx context.Context, ttl time.Duration) error {
	ids := &d.identities
	if ids.known.Load() {
		return ids.refusal()
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
	return ids.refusal()
}

// identifies returns what is closed when the nodes have been asked. Those who come meanwhile wait
// for the same answers.
func (d *backend) identifies(ctx context.Context, ttl time.Duration) <-chan struct{} {
	ids := &d.identities
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if ids.asking != nil {
		return ids.asking
	}
	asked := make(chan struct{})
	ids.asking = asked
	d.work.Add(1)
	d.do(workers.Func(func() {
		defer d.work.Done()
		answers, _ := poll(context.WithoutCancel(ctx), d, d.nodeTimeout(ttl), d.nodes, func(ctx context.Context, n *node) (any, error) {
			return nil, ids.meet(ctx, n)
		}, nil)
		ids.mu.Lock()
		defer ids.mu.Unlock()
		ids.known.Store(answered(answers) >= majority(len(d.nodes)) || ids.refusal() != nil)
		ids.asking = nil
		close(asked)
	}))
	return asked
}

// meet asks n who it is, unless it has said so. It comes before n's first vote.
func (ids *identities) meet(ctx context.Context, n *node) error {
	if n.identified.Load() {
		return ids.refusal()
	}
	id, err := n.Identify(ctx)
	if err != nil {
		return err
	}
	ids.mu.Lock()
	defer ids.mu.Unlock()
	n.identified.Store(true)
	if other := ids.nodes[id]; id != "" && other != nil && other != n {
		err := fmt.Errorf("%w: the nodes %s and %s are one server: each node has to be a server of its own", driver.ErrUnsupported, other.name, n.name)
		ids.same.CompareAndSwap(nil, &err)
	}
	if ids.nodes == nil {
		ids.nodes = map[string]*node{}
	}
	ids.nodes[id] = n
	return ids.refusal()
}

// refusal returns why no lock can be taken, if two nodes are one server.
func (ids *identities) refusal() error {
	if err := ids.same.Load(); err != nil {
		return *err
	}
	return nil
}
