package redlock

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/workers"
)

// explore visits every history.
func (x *holdExploration) explore(t *testing.T) {
	var nodes []driver.Driver
	for range exNodes {
		nodes = append(nodes, &holdNode{})
	}
	d, err := NewDriver(nodes, NodeTimeout(time.Hour))
	require.NoError(t, err)
	d.clock = func() time.Time { return time.UnixMicro(ourToken) }
	x.driver, x.seen, x.violations = d, map[uint64]struct{}{}, map[string]int{}
	x.visit(x.begin(), nil)
	d.workers.Close()
}

func (x *holdExploration) replay(path []event) *happening {
	h := x.begin()
	for _, e := range path {
		h.happen(e)
	}
	return h
}

// visit takes every step that is possible after path, and uses up h, which has come so far.
func (x *holdExploration) visit(h *happening, path []event) {
	if h.bad != "" {
		x.violations[h.bad]++
		h.drop()
		return
	}
	key := h.key()
	if _, again := x.seen[key]; again || h.lease.over || h.err != nil || x.flaw != (flaw{}) && len(x.violations) > 0 {
		h.drop()
		return
	}
	x.seen[key] = struct{}{}
	events := h.events()
	if len(events) == 0 {
		h.drop()
	}
	for k, e := range slices.Backward(events) {
		next := slices.Concat(path, []event{e})
		if k > 0 {
			x.visit(x.replay(next), next)
			continue
		}
		x.proceed(h)
		h.happen(e)
		x.visit(h, next)
	}
}

// proceed goes on with a history that another has interrupted.
func (x *holdExploration) proceed(h *happening) {
	for i := range h.nodes {
		x.driver.nodes[i].Proposer = &h.nodes[i]
	}
	x.driver.do = func(c workers.Call) { h.send(c.(*call)) }
}

// key is the same for states that differ in the names of the nodes alone, or in owners. It may be the same for two other
// states with a chance of one in 2^64.
func (h *happening) key() uint64 {
	columns := make([]uint64, exNodes)
	for i := range columns {
		columns[i] = h.column(i)
	}
	slices.Sort(columns)
	l := h.lease
	k := digestOf(0, columns...)
	k = digestOf(k, l.ballot.goal, l.token, uint64(len(h.exts)), uint64(h.epoch-h.success),
		uint64(h.forgets), uint64(h.expires), uint64(h.drops), uint64(h.losses), uint64(h.misses),
		uint64(h.granted), uint64(h.before), uint64(h.excused), uint64(h.forgot), uint64(h.forgotBefore))
	k = digestOf(k, uint64(flags(l.decided, h.decided == nil, h.ext == nil, h.otherHolds, h.solid)))
	for _, e := range h.exts {
		k = digestOf(k, uint64(flags(e.done, h.matters(e))))
	}
	return k
}

// matters reports whether an Extend, perhaps one that is over, can still be told something.
func (h *happening) matters(e *extension) bool {
	return e == h.ext || slices.ContainsFunc(h.calls, func(c *transit) bool {
		m, ok := c.request.(*extendRequest)
		return ok && m.targets[0].extension == e
	})
}

// column is what there is about a node.
func (h *happening) column(i int) uint64 {
	var owners []uint64
	name := func(owner uint64) uint64 {
		if owner == 0 || owner == otherOwner {
			return owner
		}
		at := slices.Index(owners, owner)
		if at < 0 {
			at, owners = len(owners), append(owners, owner)
		}
		return uint64(at + 1)
	}
	lease := func(l driver.Lease) (owner, token uint64) {
		if t, ok := l.(*holdLease); ok && t != nil {
			return name(t.owner), t.Token()
		}
		return 0, 0
	}
	n, s, v := &h.nodes[i], &h.lease.seats[i], h.lease.ballot.votes[i]
	owner, token := lease(s.lease)
	k := digestOf(0, name(n.owner), n.last, uint64(n.until), uint64(h.success-n.epoch), uint64(v.state), v.token, owner, token, kindOf(s.err))
	k = digestOf(k, uint64(flags(n.known, s.asking, s.late, s.joins)))
	for order, e := range h.exts {
		if h.matters(e) {
			owner, _ := lease(e.parts[i].ours)
			k = digestOf(k, uint64(order), kindOf(e.parts[i].vote), owner, uint64(flags(e.parts[i].lacks)))
		}
	}
	for _, c := range h.calls {
		if c.node != i {
			continue
		}
		var what, number, owner, token uint64
		switch m := c.request.(type) {
		case *proposeRequest:
			what, number = 1, m.token
			owner, token = lease(m.ours)
		case *raiseRequest:
			what, number = 2, m.goal
			owner, token = lease(m.ours)
		case *extendRequest:
			what, number = 3, uint64(slices.Index(h.exts, m.targets[0].extension))
			owner, token = lease(m.targets[0].ours)
		}
		k = digestOf(k, what, number, owner, token, kindOf(c.err), uint64(h.epoch-c.epoch), uint64(flags(c.arrived, c.missed)))
	}
	return k
}

// kindOf is the same for errors between which the Driver makes no difference.
func kindOf(err error) uint64 {
	for k, other := range []error{nil, locker.ErrLost, locker.ErrHeld, errAbsent, errWaiting, errJoining} {
		if errors.Is(err, other) {
			return uint64(k)
		}
	}
	return 99
}
