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

// nodesPerCheck is how many nodes are looked at in one request: a server takes 1 MB by default.
const nodesPerCheck = 100

// ExtendAll has a quorum agree that the nodes of the leases exist, and so that their session, or sessions, do. That proves
// the last contact, made one tick earlier or more, from which the holds last one TTL.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, _ time.Duration) []error {
	errs := make([]error, len(leases))
	places := map[*session][]int{}
	for i, l := range leases {
		own := l.(*claim).lease
		if own == nil || own.lost() || own.at() == "" {
			errs[i] = driver.ErrLost
			continue
		}
		places[own.session] = append(places[own.session], i)
	}
	var answered sync.WaitGroup
	for s, all := range places {
		answered.Go(func() {
			for some := range slices.Chunk(all, nodesPerCheck) {
				s.extend(ctx, leases, some, errs)
			}
		})
	}
	answered.Wait()
	return errs
}

// extend sets the errors of the leases at places. A check of several nodes fails as a whole, and says which was the first to be
// missing.
func (s *session) extend(ctx context.Context, leases []driver.Lease, places []int, errs []error) {
	o := s.driver.outage(s.TTL)
	for len(places) > 0 {
		nodes := make([]string, len(places))
		for i, at := range places {
			nodes[i] = leases[at].(*claim).lease.at()
		}
		var said []zk.MultiResponse
		asked := clock.Now()
		err := o.Ask(ctx, func(ctx context.Context) (err error) {
			said, err = s.check(ctx, nodes...)
			return err
		})
		missing := slices.IndexFunc(said, func(r zk.MultiResponse) bool { return errors.Is(r.Error, zk.ErrNoNode) })
		if missing >= 0 {
			if moved, err := leases[places[missing]].(*claim).lease.moved(ctx, nodes[missing]); moved {
				continue
			} else if err != nil {
				errs[places[missing]] = asLost(err)
			} else {
				errs[places[missing]] = driver.ErrLost
			}
			places = slices.Delete(slices.Clone(places), missing, missing+1)
			continue
		}
		if err == nil {
			err = s.freshEnough(ctx, nodes[0], clock.Since(asked))
		}
		for _, at := range places {
			errs[at] = asLost(err)
			if err == nil && leases[at].(*claim).lease.lost() {
				errs[at] = driver.ErrLost
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
