package sqllock

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
)

// waiting has those of a Driver's claims that wait, by name, in the order of their tickets. The
// first of a name looks often. When it leaves, or the lock is released here, the first is woken.
type waiting struct {
	mu sync.Mutex
	of map[string][]*claim
}

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

// leave takes c out of the queue, if it is there. If it was the first, the next one is woken.
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

// wake wakes the first who waits for a lock that was released.
func (w *waiting) wake(key []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if queue := w.of[string(key)]; len(queue) > 0 {
		queue[0].Wake()
	}
}

// tokens remembers, by key, the last token of locks that this Driver has released. A claim
// that knows it takes without a look.
type tokens struct {
	mu sync.Mutex
	of map[string]int64
}

const mostTokens = 4096

func (t *tokens) remember(key []byte, token int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]int64{}
	}
	if len(t.of) >= mostTokens {
		for other := range t.of { // any
			delete(t.of, other)
			break
		}
	}
	t.of[string(key)] = token
}

// recall returns the token and forgets it, because the caller is about to change it. It returns 0
// if it knows none.
func (t *tokens) recall(key []byte) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	token := t.of[string(key)]
	delete(t.of, string(key))
	return token
}
