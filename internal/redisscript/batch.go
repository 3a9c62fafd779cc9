package redisscript

import (
	"context"
	"slices"
	"time"
)

// batch is some requests that are sent together, and their context: it ends when nobody waits for any of them, which is by its
// deadline, or when it has been sent and answered. A context of the standard library would cost four allocations more.
type batch struct {
	sender   *sender
	era      int
	requests []*request
	one      [1]*request     // requests, if there is one
	values   context.Context // of its caller; nil if there are several
	until    time.Time
	done     chan struct{}

	// Guarded by the sender's mutex.
	wanted int // requests that are still waited for
	ended  bool
}

// load returns a batch of the requests that wait, or of some. The caller holds s.mu.
func (s *sender) load() *batch {
	n, calls := 1, len(s.waiting[0].calls)
	for n < len(s.waiting) && calls+len(s.waiting[n].calls) <= maxCalls {
		calls += len(s.waiting[n].calls)
		n++
	}
	b := &batch{sender: s, era: s.era, wanted: n, done: make(chan struct{})}
	b.requests = append(b.one[:0], s.waiting[:n]...)
	if n == 1 {
		b.values = b.one[0].ctx
	}
	for _, r := range b.requests {
		r.batch = b
		if r.until.After(b.until) {
			b.until = r.until
		}
	}
	if s.waiting = slices.Delete(s.waiting, 0, n); len(s.waiting) == 0 {
		s.late.Stop()
	} else {
		s.late.Reset(overdue)
	}
	return b
}

// Run sends b, and further batches for as long as requests wait. It implements workers.Call.
func (b *batch) Run() {
	for b != nil {
		b.flush()
		b = b.next()
	}
}

// flush makes all requests, in one round trip.
func (b *batch) flush() {
	calls, replies := b.requests[0].calls, b.requests[0].replies
	if len(b.requests) > 1 {
		calls = nil
		for _, r := range b.requests {
			calls = append(calls, r.calls...)
		}
		replies = make([]Reply, len(calls))
	}
	Run(b, b.sender.runner, calls, replies)
	for _, r := range b.requests {
		replies = replies[copy(r.replies, replies):]
		r.ended.Store(true)
		r.done <- struct{}{}
	}
}

// next ends b, and returns the batch that comes after it, if any does.
func (b *batch) next() *batch {
	s := b.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	b.end()
	switch {
	case b.era != s.era: // it was overdue, and another has taken over
		return nil
	case len(s.waiting) == 0:
		s.underWay--
		return nil
	default:
		return s.load()
	}
}

// end ends b as a context. The caller holds the sender's mutex.
func (b *batch) end() {
	if !b.ended {
		b.ended = true
		close(b.done)
	}
}

// Deadline implements context.Context.
func (b *batch) Deadline() (time.Time, bool) { return b.until, true }

// Done implements context.Context.
func (b *batch) Done() <-chan struct{} { return b.done }

// Err implements context.Context.
func (b *batch) Err() error {
	select {
	case <-b.done:
		return context.Canceled
	default:
		return nil
	}
}

// Value implements context.Context.
func (b *batch) Value(key any) any {
	if b.values == nil {
		return nil
	}
	return b.values.Value(key)
}
