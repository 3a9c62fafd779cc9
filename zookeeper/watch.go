package zookeeper

import (
	"maps"
	"slices"
	"sync"
)

// watches are those of a session, for the end of nodes, and for the children of parents. The library
// cannot remove a watch (go-zookeeper/zk#76), and sets another one at each call. So there is one for
// each node, until it fires, for all awaiters that come meanwhile.
type watches struct {
	mu    sync.Mutex
	nodes map[string]*watch
}

// watch is of one node.
type watch struct {
	set   bool // at the server
	wakes map[*awaiter]func()
}

// awaiter waits for one watch to fire.
type awaiter struct{ node string } // guarded by the mutex of watches; empty: it was woken

// join adds a to the awaiters of a node. It returns the watch if the caller has to set it.
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

// awaited returns the node for whose end l waits; empty if it was woken.
func (w *watches) awaited(l *lease) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return l.awaits.node
}

// forget removes a from the awaiters of its node.
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

// fire wakes the awaiters of a node.
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

// fireAll wakes all awaiters, when the session has ended.
func (w *watches) fireAll() {
	w.mu.Lock()
	nodes := slices.Collect(maps.Keys(w.nodes))
	w.mu.Unlock()
	for _, node := range nodes {
		w.fire(node)
	}
}
