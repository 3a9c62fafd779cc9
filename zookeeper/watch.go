package zookeeper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// watches are those of a session for the end of nodes, and for who comes to a queue, which the
// server sends. The library cannot take a watch back (go-zookeeper/zk#76), and adds one at each
// call. So there is one a node, for all who come to wait for it, one after the other, until it has
// fired.
type watches struct {
	mu    sync.Mutex
	nodes map[string]*watch
}

// watch is of one node.
type watch struct {
	set   bool
	wakes map[*awaiter]func() // those who wait for it to fire
}

// awaiter waits for a watch to fire, and for no other.
type awaiter struct{ node string } // guarded by the mutex of watches; empty: it was woken

// await has wake called when the node changes or is gone, or the session ends. It returns true if
// the node is gone already.
func (l *lease) await(ctx context.Context, node string, wake func()) (gone bool, err error) {
	s := l.session
	w := s.watches.join(&l.awaits, node, wake) // before it is set: an event may come as soon as it is
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
		s.watches.forget(&l.awaits)
	}
	if err == nil && s.Ended() { // nobody else wakes it then
		err = errSessionEnded
	}
	return gone, err
}

// NotifyWait implements driver.WaitNotifier, by one read of the queue, which leaves a watch.
func (c *claim) NotifyWait(ctx context.Context, wake func()) (waits bool, next time.Duration, err error) {
	l := c.lease
	s, a := l.session, &awaiter{}
	context.AfterFunc(ctx, func() { s.watches.forget(a) })
	w := s.watches.join(a, l.parent, wake)
	children, err := call(ctx, s, reads, func(conn *zk.Conn) (children []string, err error) {
		if w == nil {
			children, _, err = conn.Children(l.parent)
			return children, err
		}
		if children, _, _, err = conn.ChildrenW(l.parent); err == nil {
			s.watches.mu.Lock()
			w.set = true
			s.watches.mu.Unlock()
		}
		return children, err
	})
	if err != nil {
		return false, 0, err
	}
	queue := inQueue(children)
	slices.SortFunc(queue, compare)
	return len(queue) > len(holders(queue)), c.TTL, nil
}

// join has a wait for a node's watch to fire. It returns the watch, or nil if that is set.
func (w *watches) join(a *awaiter, node string, wake func()) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.node != node {
		w.end(a)
	}
	one := w.nodes[node]
	if one == nil {
		one = &watch{wakes: map[*awaiter]func(){}}
		w.nodes[node] = one
	}
	one.wakes[a], a.node = wake, node
	if one.set {
		return nil
	}
	return one
}

// awaited returns the node for whose end l waits, or "" if it was woken.
func (w *watches) awaited(l *lease) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return l.awaits.node
}

// forget has nobody wake a.
func (w *watches) forget(a *awaiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(a)
}

// end is forget. The caller holds w.mu.
func (w *watches) end(a *awaiter) {
	if one := w.nodes[a.node]; one != nil {
		delete(one.wakes, a)
		if len(one.wakes) == 0 && !one.set {
			delete(w.nodes, a.node)
		}
	}
	a.node = ""
}

// fire wakes those who wait for a change of a node.
func (w *watches) fire(node string) {
	w.mu.Lock()
	var wakes map[*awaiter]func()
	if one := w.nodes[node]; one != nil {
		wakes = one.wakes
	}
	delete(w.nodes, node)
	for a := range wakes {
		a.node = ""
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
