package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// ExtendAll asks a quorum whether the nodes of the leases exist. If they do, their session exists.
// After this answer, the leader knows all contacts of the session that were made at least one tick
// ago. The holds last one TTL from the latest of these contacts, so they may end up to a tick
// earlier than one TTL from now.
func (d *backend) ExtendAll(ctx context.Context, leases []driver.Lease, _ time.Duration) []error {
	errs := make([]error, len(leases))
	var lasting []int // they have one TTL, and so one session
	for i, l := range leases {
		if own := l.(*claim).lease; own == nil || own.state().path == "" || own.lost() {
			errs[i] = driver.ErrLost
		} else {
			lasting = append(lasting, i)
		}
	}
	for some := range slices.Chunk(lasting, nodesPerCheck) {
		all := make([]*lease, len(some))
		for i, at := range some {
			all[i] = leases[at].(*claim).lease
		}
		for i, err := range extend(ctx, all) {
			errs[some[i]] = err
		}
	}
	return errs
}

// extend extends leases of one session. A check of several nodes fails as a whole, and tells which
// was the first to be missing.
func extend(ctx context.Context, leases []*lease) []error {
	s, errs := leases[0].session, make([]error, len(leases))
	for {
		var nodes []string
		var at []int
		for i, l := range leases {
			if errs[i] == nil {
				nodes, at = append(nodes, l.state().path), append(at, i)
			}
		}
		if len(nodes) == 0 {
			return errs
		}
		asked := clock.Now()
		responses, err := s.check(ctx, nodes...)
		if i := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return errors.Is(r.Error, zk.ErrNoNode) }); i >= 0 {
			if moved, err := leases[at[i]].moved(ctx, nodes[i]); !moved {
				errs[at[i]] = cmp.Or(asLost(err), driver.ErrLost)
			}
			continue
		}
		if err == nil {
			err = s.freshEnough(ctx, nodes[0], clock.Since(asked))
		}
		for _, i := range at {
			if errs[i] = asLost(err); err == nil && leases[i].lost() {
				errs[i] = driver.ErrLost
			}
		}
		return errs
	}
}

// freshEnough is for a session of which, after a check, no more than half a TTL is left, because
// its last contact was long ago or is too young to be proven; and for one in the first tick of its
// life, of which nothing has been proven but its beginning. Over a link that was slow to answer the
// check it would use up what is left: there the next Extend comes sooner.
func (s *session) freshEnough(ctx context.Context, node string, took time.Duration) error {
	s.mu.Lock()
	born, newborn, tick := s.life.born, !s.life.proven.After(s.life.born), s.life.tick
	s.mu.Unlock()
	if left := s.Left(); (newborn || left <= s.TTL/2) && 4*took+tick < left {
		_ = s.refresh(ctx, node, born) // if it fails, what there is has been extended
	}
	if s.Ended() {
		return errSessionEnded
	}
	return nil
}
