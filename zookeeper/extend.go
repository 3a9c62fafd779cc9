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
		own := l.(*lease)
		if own.lost() || own.at() == "" {
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
	o := newOutage(s.TTL, unheard)
	o.Explain = explain(s.trouble)
	for len(places) > 0 {
		nodes := make([]string, len(places))
		for i, at := range places {
			nodes[i] = leases[at].(*lease).at()
		}
		var said []zk.MultiResponse
		err := o.Ask(ctx, func(ctx context.Context) (err error) {
			said, err = s.check(ctx, nodes...)
			return err
		})
		if err == nil {
			err = s.freshEnough(ctx, nodes[0])
		}
		missing := -1
		if errors.Is(err, zk.ErrNoNode) {
			missing = firstMissing(said)
		}
		if missing < 0 {
			for _, at := range places {
				errs[at] = asLost(err)
				if err == nil && leases[at].(*lease).lost() {
					errs[at] = driver.ErrLost
				}
			}
			return
		}
		errs[places[missing]] = driver.ErrLost
		places = append(places[:missing:missing], places[missing+1:]...)
	}
}

func firstMissing(said []zk.MultiResponse) int {
	for i, r := range said {
		if errors.Is(r.Error, zk.ErrNoNode) {
			return i
		}
	}
	return -1
}

// freshEnough is for a session of which, after a check, no more than half a TTL is left, because its last contact was long ago or is
// too young to be proven; and for one in the first tick of its life, of which nothing has been proven but its
// beginning.
func (s *session) freshEnough(ctx context.Context, node string) error {
	if s.Ended() {
		return errSessionEnded
	}
	s.mu.Lock()
	newborn, ripens := !s.life.proven.After(s.life.born), s.life.ripens(s.life.proven)
	s.mu.Unlock()
	var err error
	switch {
	case newborn && !ripens.IsZero():
		if err = clock.Sleep(ctx, ripens.Sub(clock.Now())); err == nil {
			_, err = s.check(ctx, node)
		}
	case s.Left() <= s.TTL/2:
		err = s.refresh(ctx, node)
	}
	if errors.Is(err, errSessionEnded) {
		return err
	}
	return nil // what there is has been extended
}
