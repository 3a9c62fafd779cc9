package zookeeper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// watches are those of a session for the end of nodes, which the server sends. The library cannot
// take a watch back (go-zookeeper/zk#76), and adds one at each call. So there is one a node, for
// all who come to wait for it, one after the other, until it has fired.
type watches struct {
	mu    sync.Mutex
	nodes map[string]*watch
}

// watch is for the end of one node.
type watch struct {
	set   bool
	wakes map[*lease]func() // those who wait for that
}

// await has wake called when the node changes or is gone, or the session ends. It returns true if
// the node is gone already.
func (l *lease) await(ctx context.Context, node string, wake func()) (gone bool, err error) {
	s := l.session
	w := s.watches.join(l, node, wake) // before it is set: an event may come as soon as it is
	if w != nil {
		gone, err = call(ctx, s, reads, func(conn *zk.Conn) (gone bool, err error) {
			_, _, _, err = conn.GetW(node) // ExistsW would watch for a node to come that never does
			if errors.Is(err, zk.ErrNoNode) {
				return true, nil
			}
			if err == nil {
				s.watches.mu.Lock()
				w.set = true // and it may have fired by now
				s.watches.mu.Unlock()
			}
			return false, err
		})
	}
	if gone {
		s.watches.forget(l)
	}
	if err == nil && s.Ended() { // nobody else wakes it then
		err = errSessionEnded
	}
	return gone, err
}

// join makes l one who waits for the end of a node, and of no other. It returns the watch, or nil
// if that is set.
func (w *watches) join(l *lease, node string, wake func()) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.awaits != node {
		w.end(l)
	}
	one := w.nodes[node]
	if one == nil {
		one = &watch{wakes: map[*lease]func(){}}
		w.nodes[node] = one
	}
	one.wakes[l], l.awaits = wake, node
	if one.set {
		return nil
	}
	return one
}

// awaited returns the node for whose end l waits, or "" if it was woken.
func (w *watches) awaited(l *lease) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return l.awaits
}

// forget has nobody wake l.
func (w *watches) forget(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(l)
}

// end is forget. The caller holds w.mu.
func (w *watches) end(l *lease) {
	if one := w.nodes[l.awaits]; one != nil {
		delete(one.wakes, l)
		if len(one.wakes) == 0 && !one.set {
			delete(w.nodes, l.awaits)
		}
	}
	l.awaits = ""
}

// fire wakes those who wait for the end of a node.
func (w *watches) fire(node string) {
	w.mu.Lock()
	var wakes map[*lease]func()
	if one := w.nodes[node]; one != nil {
		wakes = one.wakes
	}
	delete(w.nodes, node)
	for l := range wakes {
		l.awaits = ""
	}
	w.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// fireAll wakes all who wait, when the session has ended.
func (w *watches) fireAll() {
	w.mu.Lock()
	nodes := slices.Collect(maps.Keys(w.nodes))
	w.mu.Unlock()
	for _, node := range nodes {
		w.fire(node)
	}
}

// watch has a holder told when its node is gone, unless that is by the holder itself. If that fails
// the hold hears of its end at its next renewal.
func (l *lease) watch() error {
	s := l.session
	ctx, cancel := context.WithTimeout(s.Context(), pace(s.TTL)/3)
	defer cancel()
	for {
		now := l.state()
		if now.leaving() {
			return nil
		}
		gone, err := l.await(ctx, now.path, func() { _ = s.driver.spawn(func() { _ = l.watch() }) })
		if err != nil || !gone {
			return err
		}
		moved, err := l.moved(ctx, now.path)
		if err != nil {
			return err
		}
		if !moved {
			if !l.state().leaving() {
				s.Tell(l)
			}
			return nil
		}
	}
}
