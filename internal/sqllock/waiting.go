package sqllock

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
)

// waiting is the local wait list of a Driver: its waiting claims by name, in the order of their
// tickets. Only the first of a name polls fast. The first is woken when the lock is released
// through this Driver, and when the waiter ahead of it leaves; a release of another Driver it sees
// by polling.
type waiting struct {
	mu sync.Mutex // guards of
	of map[string][]*claim
}

// enter inserts c. It need not come last: a row's ticket is the database's time, and the replies of
// two looks may arrive in either order.
func (w *waiting) enter(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[string][]*claim{}
	}
	queue := w.of[string(c.key)]
	i, _ := slices.BinarySearchFunc(queue, c, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), bytes.Compare(a.owner, b.owner))
	})
	w.of[string(c.key)] = slices.Insert(queue, i, c)
}

// leave removes c, if it is in the list. If it was the first, the next one is woken.
func (w *waiting) leave(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	queue := w.of[string(c.key)]
	i := slices.Index(queue, c)
	switch {
	case i < 0:
		return
	case len(queue) == 1:
		delete(w.of, string(c.key))
		return
	}
	queue = slices.Delete(queue, i, i+1)
	w.of[string(c.key)] = queue
	if i == 0 {
		queue[0].Wake()
	}
}

func (w *waiting) first(c *claim) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	queue := w.of[string(c.key)]
	return len(queue) > 0 && queue[0] == c
}

// wake wakes the first waiter of a lock that was released.
func (w *waiting) wake(key []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if queue := w.of[string(key)]; len(queue) > 0 {
		queue[0].Wake()
	}
}

// Recent caches a value for each of up to mostRecent keys. A miss costs a request, nothing else.
type Recent[V any] struct {
	mu sync.Mutex
	of map[string]V
}

const mostRecent = 4096

// Set stores a value. A full cache evicts an arbitrary key.
func (r *Recent[V]) Set(key []byte, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]V{}
	}
	if _, ok := r.of[string(key)]; !ok && len(r.of) >= mostRecent {
		for other := range r.of {
			delete(r.of, other)
			break
		}
	}
	r.of[string(key)] = value
}

// Get returns the value, or the zero value.
func (r *Recent[V]) Get(key []byte) V {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[string(key)]
}
