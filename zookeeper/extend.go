package zookeeper

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// extension is a lease to be extended, and what has come of it.
type extension struct {
	*lease
	err *error
}

// ExtendAll has a quorum agree that the nodes of the leases exist, and so that their session, or
// sessions, do. That proves the last contact, made one tick earlier or more, from which the holds
// last one TTL.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, _ time.Duration) []error {
	errs := make([]error, len(leases))
	on := map[*session][]extension{}
	for i, l := range leases {
		own := l.(*claim).lease
		if own == nil || own.state().finished || own.state().path == "" {
			errs[i] = driver.ErrLost
			continue
		}
		on[own.session] = append(on[own.session], extension{own, &errs[i]})
	}
	var answered sync.WaitGroup
	for s, all := range on {
		answered.Go(func() {
			for some := range slices.Chunk(all, nodesPerCheck) {
				s.extend(ctx, some)
			}
		})
	}
	answered.Wait()
	return errs
}

// extend sets the errors of leases. A check of several nodes fails as a whole, and tells which was
// the first to be missing.
func (s *session) extend(ctx context.Context, all []extension) {
	for len(all) > 0 {
		nodes := make([]string, len(all))
		for i, e := range all {
			nodes[i] = e.state().path
		}
		asked := clock.Now()
		responses, err := s.check(ctx, nodes...)
		if i := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return errors.Is(r.Error, zk.ErrNoNode) }); i >= 0 {
			moved, err := all[i].moved(ctx, nodes[i])
			if moved {
				continue
			}
			if *all[i].err = asLost(err); err == nil {
				*all[i].err = driver.ErrLost
			}
			all = slices.Concat(all[:i], all[i+1:])
			continue
		}
		if err == nil {
			err = s.freshEnough(ctx, nodes[0], clock.Since(asked))
		}
		for _, e := range all {
			if *e.err = asLost(err); err == nil && e.state().finished {
				*e.err = driver.ErrLost
			}
		}
		return
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
