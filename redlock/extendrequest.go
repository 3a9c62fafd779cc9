package redlock

import (
	"context"
	"errors"
	"slices"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
)

// mostTogether is how many leases a node is asked to extend in one request. Of more than that one time-out would be that of all.
const mostTogether = 1024

// extendAt adds the calls that ask node i to extend what is ours there, in as few requests as may be.
func (d *Driver) extendAt(calls []call, i int, all []*extension) []call {
	n := d.nodes[i]
	together := 1
	if _, batches := n.Node.(driver.BatchExtender); batches {
		together = mostTogether
	}
	targets := make([]target, 0, len(all))
	for _, e := range all {
		if ours := e.parts[i].ours; ours != nil {
			targets = append(targets, target{e, ours})
		}
	}
	for some := range slices.Chunk(targets, together) {
		calls = append(calls, call{node: n, request: &extendRequest{node: n, i: i, targets: some}})
	}
	return calls
}

// target is what a node is to extend.
type target struct {
	*extension
	ours quorum.Candidate // there
}

// extendRequest asks node i for some extensions.
type extendRequest struct {
	node    *node
	i       int
	targets []target
	errs    []error // of each, if there is more than one
}

var (
	errIncomplete = errors.New("the Driver has not answered for every lease")
	errNotRaised  = errors.New("has accepted a larger token")
)

// send extends what is ours at the node, and raises its token if that is smaller than the lease's, or not known because
// the answer of the node was lost.
func (x *extendRequest) send(ctx context.Context) error {
	errs := x.extend(ctx)
	if len(errs) != len(x.targets) {
		return errIncomplete
	}
	for k, t := range x.targets {
		if errs[k] != nil || t.ours.Token() >= t.lease.token {
			continue
		}
		if errs[k] = t.ours.Raise(ctx, t.lease.token); errors.Is(errs[k], driver.ErrLost) {
			errs[k] = errNotRaised // it was there a moment ago
		}
	}
	if len(errs) > 1 {
		x.errs = errs
	}
	return errs[0] // for the health of the node, too
}

func (x *extendRequest) extend(ctx context.Context) []error {
	ttl := x.targets[0].ttl
	if len(x.targets) == 1 {
		return []error{x.targets[0].ours.Extend(ctx, ttl)}
	}
	leases := make([]driver.Lease, len(x.targets))
	for k, t := range x.targets {
		leases[k] = t.ours
	}
	return x.node.Node.(driver.BatchExtender).ExtendAll(ctx, leases, ttl)
}

func (x *extendRequest) heard(err error, over bool) {
	for k, t := range x.targets {
		if over && x.errs != nil {
			err = inTime(x.errs[k], t.lease.timeout())
		}
		t.heard(x.i, err)
	}
}

// heard takes in the answer of node i.
func (t target) heard(i int, err error) {
	l := t.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	t.parts[i].vote = err
	if s := &l.seats[i]; errors.Is(err, driver.ErrLost) && s.lease == t.ours && !l.over {
		s.lease = nil
	}
	if t.done {
		l.send(t.settle(nil, i))
	}
	l.changed()
}
