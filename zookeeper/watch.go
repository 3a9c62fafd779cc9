package zookeeper

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// watch is one for the end of a node, which the server sends.
type watch struct {
	events <-chan zk.Event   // gets an event, and is closed, when the node changes or is gone; nil: the watch is not set yet
	wakes  map[*lease]func() // those who wait for that
}

// await has wake called when the node changes or is gone, or the session ends. It returns true if
// the node is gone already.
func (s *session) await(ctx context.Context, l *lease, node string, wake func()) (gone bool, err error) {
	s.mu.Lock()
	if l.awaits != node {
		s.endAwait(l)
	}
	s.watch(node).wakes[l], l.awaits = wake, node // before it is set: an event may come as soon as it is
	s.mu.Unlock()
	if gone, err = s.setWatch(ctx, node); gone {
		s.forgetAwait(l)
	}
	if err == nil && s.Ended() { // nobody else wakes it then
		err = errSessionEnded
	}
	return gone, err
}

// awaits returns the node for whose end l waits, or "" if it was woken.
func (s *session) awaits(l *lease) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.awaits
}

// forgetAwait has nobody wake l.
func (s *session) forgetAwait(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endAwait(l)
}

// endAwait is forgetAwait. The caller holds s.mu.
func (s *session) endAwait(l *lease) {
	if w := s.watches[l.awaits]; w != nil {
		delete(w.wakes, l)
		s.tidy(l.awaits, w)
	}
	l.awaits = ""
}

// watch returns that of a node. The caller holds s.mu.
func (s *session) watch(node string) *watch {
	w := s.watches[node]
	if w == nil {
		w = &watch{wakes: map[*lease]func(){}}
		s.watches[node] = w
	}
	return w
}

// tidy forgets a watch that is not set, and that nobody needs. The caller holds s.mu.
func (s *session) tidy(node string, w *watch) {
	if w.events == nil && len(w.wakes) == 0 && s.watches[node] == w {
		delete(s.watches, node)
	}
}

// setWatch has the server tell when the node changes or is gone, and returns true if it is gone
// already. The library cannot take a watch back, and adds one at each call. So there is one a node,
// for all who come to wait for it, one after the other, until it has fired.
func (s *session) setWatch(ctx context.Context, node string) (gone bool, err error) {
	s.mu.Lock()
	w := s.watch(node)
	set := w.events != nil && !fired(w.events)
	s.mu.Unlock()
	if set {
		return false, nil
	}
	gone, err = call(ctx, s, reads, func(conn *zk.Conn) (gone bool, err error) {
		_, _, events, err := conn.GetW(node) // ExistsW would watch for a node to come that never does
		if err == nil {
			s.isSet(w, events)
		}
		if errors.Is(err, zk.ErrNoNode) {
			return true, nil
		}
		return false, err
	})
	s.mu.Lock()
	s.tidy(node, w)
	s.mu.Unlock()
	return gone, err
}

// isSet takes in that a watch was set. It may have fired by now.
func (s *session) isSet(w *watch, events <-chan zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.events = events
	switch {
	case s.own != nil: // the library calls hear
	case s.added == nil:
		s.added = make(chan struct{}, 1)
		_ = s.driver.spawn(s.hearWatches)
	default:
		select {
		case s.added <- struct{}{}:
		default:
		}
	}
}

// mostCases is how many package reflect takes. Who waits for others looks again after a while.
const mostCases = 1 << 16

// hearWatches hears of all watches on the application's connection, while there are any: the
// library drops events that are not taken at once, and the application may keep them from us.
func (s *session) hearWatches() {
	for {
		s.mu.Lock()
		cases := []reflect.SelectCase{
			{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(s.Context().Done())}, {Dir: reflect.SelectRecv, Chan: reflect.ValueOf(s.added)},
		}
		nodes := make([]string, len(cases))
		for node, w := range s.watches {
			if w.events != nil && len(cases) < mostCases {
				cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(w.events)})
				nodes = append(nodes, node)
			}
		}
		over := s.Ended() || len(s.watches) == 0
		if over {
			s.added = nil
		}
		s.mu.Unlock()
		if over {
			return
		}
		if i, _, _ := reflect.Select(cases); nodes[i] != "" {
			s.fire(nodes[i])
		}
	}
}

// fire wakes those who wait for the end of a node.
func (s *session) fire(node string) {
	s.mu.Lock()
	w := s.watches[node]
	delete(s.watches, node)
	if w != nil {
		for l := range w.wakes {
			l.awaits = ""
		}
	}
	s.mu.Unlock()
	if w != nil {
		for _, wake := range w.wakes {
			wake()
		}
	}
}

// wakeAll wakes all who wait, when the session has ended.
func (s *session) wakeAll() {
	s.mu.Lock()
	nodes := slices.Collect(maps.Keys(s.watches))
	s.mu.Unlock()
	for _, node := range nodes {
		s.fire(node)
	}
}

// Watch implements sessions.Backend. An event is heard on connections of ours, and on the
// application's if we are given its events.
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
	} else if gone, err := s.setWatch(ctx, node); err == nil && gone {
		s.nodeGone(node)
	}
}

// hear takes in an event of a node. It does not block.
func (s *session) hear(e zk.Event) {
	if s.own != nil {
		s.fire(e.Path)
	}
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

// fired reports whether a watch is closed, or will be in a moment.
func fired(gone <-chan zk.Event) bool {
	select {
	case <-gone:
		return true
	default:
		return false
	}
}
