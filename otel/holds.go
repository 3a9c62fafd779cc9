package otel

import (
	"sync"
	"time"

	"github.com/go-locker/locker"
)

// holds are those of an observer that last, and the labels that it has seen.
type holds struct {
	mu     sync.Mutex
	lasts  map[locker.HoldID]*lasting
	labels map[string]bool
}

// lasting is a hold, or several shares, which have the same token. n is below 0 if the end of a
// hold was told before its beginning.
type lasting struct {
	label string
	since time.Time
	n     int
}

// began notes a hold. It reports whether its label is new.
func (h *holds) began(id locker.HoldID, label string) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(id, label, 1)
	first = !h.labels[label]
	h.labels[label] = true
	return first
}

func (h *holds) ended(id locker.HoldID, label string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(id, label, -1)
}

// add changes how many there are of one. The caller holds h.mu.
func (h *holds) add(id locker.HoldID, label string, n int) {
	if h.lasts == nil {
		h.lasts, h.labels = map[locker.HoldID]*lasting{}, map[string]bool{}
	}
	one := h.lasts[id]
	if one == nil {
		one = &lasting{label: label, since: time.Now()}
		h.lasts[id] = one
	}
	if one.n += n; one.n == 0 {
		delete(h.lasts, id)
	}
}

// oldest returns the age of the oldest hold of each label, and 0 if there is none.
func (h *holds) oldest() map[string]time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	ages := map[string]time.Duration{}
	for label := range h.labels {
		ages[label] = 0
	}
	for _, one := range h.lasts {
		if one.n > 0 {
			ages[one.label] = max(ages[one.label], time.Since(one.since))
		}
	}
	return ages
}
