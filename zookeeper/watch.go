package zookeeper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// prune is how many watches there are before those are looked for that have fired.
const prune = 64

// watch returns what gets an event, and is closed, when the node changes or is gone; nil if it is gone already. The library
// cannot take a watch back, and adds one at each call. So there is one a node, for all who come to wait for it, one after the
// other, until it has fired.
func (s *session) watch(ctx context.Context, node string) (<-chan zk.Event, error) {
	s.mu.Lock()
	gone := s.watches[node]
	s.mu.Unlock()
	if gone != nil && !fired(gone) {
		return gone, nil
	}
	return call(ctx, s, reads, func(conn *zk.Conn) (<-chan zk.Event, error) {
		_, _, gone, err := conn.GetW(node) // ExistsW would watch for a node to come that never does
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		if err == nil {
			s.keepWatch(node, gone)
		}
		return gone, err
	})
}

// Watch implements sessions.Backend. An event is heard on connections of ours, and on the application's if we are given its events.
func (s *session) Watch(leases []*lease) {
	if s.own == nil && !s.driver.hears {
		return
	}
	_ = s.driver.spawn(func() {
		for some := range slices.Chunk(leases, nodesPerCheck) {
			var asked sync.WaitGroup
			for _, l := range some {
				asked.Go(func() { s.watchOwn(l) })
			}
			asked.Wait()
		}
	})
}

// watchOwn watches the node of a hold. If that fails the hold hears of its end at its next renewal.
func (s *session) watchOwn(l *lease) {
	ctx, cancel := context.WithTimeout(s.Context(), pace(s.TTL)/3)
	defer cancel()
	node := l.at()
	s.mu.Lock()
	s.holds[node] = l
	s.mu.Unlock()
	if l.lost() {
		s.forget(node)
	} else if gone, err := s.watch(ctx, node); err == nil && gone == nil {
		s.nodeGone(node)
	}
}

// hear takes in an event of a node. It does not block.
func (s *session) hear(e zk.Event) {
	if e.Type == zk.EventNodeDeleted {
		s.nodeGone(e.Path)
	}
}

// forget ends what Watch has begun for a node.
func (s *session) forget(node string) (l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l = s.holds[node]
	delete(s.holds, node)
	return l
}

// nodeGone tells the holder whose node was removed, unless that was by the holder itself.
func (s *session) nodeGone(node string) {
	l := s.forget(node)
	if l == nil || l.leaving() {
		return
	}
	_ = s.driver.spawn(func() {
		ctx, cancel := context.WithTimeout(s.Context(), pace(s.TTL)/3)
		defer cancel()
		switch moved, err := l.moved(ctx, node); {
		case err != nil:
		case moved:
			s.watchOwn(l)
		default:
			s.Tell(l)
		}
	})
}

func (s *session) keepWatch(node string, gone <-chan zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.watches); n >= prune && n&(n-1) == 0 {
		maps.DeleteFunc(s.watches, func(_ string, gone <-chan zk.Event) bool { return fired(gone) })
	}
	s.watches[node] = gone
}

// fired reports whether a watch is closed, or will be in a moment.
func fired(gone <-chan zk.Event) bool {
	select {
	case <-gone:
		return true
	default:
		return false
	}
}
