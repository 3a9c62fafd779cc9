package redisscript

import (
	"context"
	"slices"
	"time"
)

// batch is some requests that are sent together, and their context: it ends when nobody waits for
// any of them, which is by its deadline, or when it has been sent and answered. A context of the
// standard library would cost four allocations more.
type batch struct {
	sender *sender
	first  *request        // of those that are sent together
	values context.Context // of the caller; nil if there are several
	until  time.Time
	done   chan struct{}
	era    int32
	calls  int32 // of all requests

	// Guarded by the sender's mutex.
	wanted int32 // requests that are still waited for
	err    error // not nil from when done is closed
}

// load returns a batch of the requests that wait, or of some. The caller holds s.mu.
func (s *sender) load() *batch {
	n, calls := 1, len(s.waiting[0].calls)
	for n < len(s.waiting) && calls+len(s.waiting[n].calls) <= maxCalls {
		calls += len(s.waiting[n].calls)
		n++
	}
	s.latest = time.Now()
	b := &batch{sender: s, era: s.era, calls: int32(calls), wanted: int32(n), done: make(chan struct{})}
	if n == 1 {
		b.values = s.waiting[0].ctx
	}
	for _, r := range slices.Backward(s.waiting[:n]) {
		r.batch, r.next, b.first = b, b.first, r
		if r.until.After(b.until) {
			b.until = r.until
		}
	}
	if s.waiting = slices.Delete(s.waiting, 0, n); len(s.waiting) == 0 {
		s.overtime.Stop()
	} else {
		s.overtime.Reset(overdue)
	}
	return b
}

// Run makes all requests of b, in one round trip, and sends further batches for as long as requests
// wait. It implements workers.Call.
func (b *batch) Run() {
	for ; b != nil; b = b.next() {
		calls, replies := b.first.calls, b.first.replies
		if b.first.next != nil {
			calls, replies = make([]Call, 0, b.calls), make([]Reply, b.calls)
			for r := b.first; r != nil; r = r.next {
				calls = append(calls, r.calls...)
			}
		}
		Run(b, b.sender.runner, calls, replies)
		for r, next := b.first, (*request)(nil); r != nil; r = next {
			next, r.next = r.next, nil // before its caller has it back
			replies = replies[copy(r.replies, replies):]
			r.ended.Store(true)
			r.done <- struct{}{}
		}
	}
}

// next ends b, and returns the batch that comes after it, if any does.
func (b *batch) next() *batch {
	s := b.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	b.end()
	return s.next(b.era)
}

// end ends b as a context. The caller holds the sender's mutex.
func (b *batch) end() {
	if b.err != nil {
		return
	}
	b.err = context.Canceled
	if !time.Now().Before(b.until) {
		b.err = context.DeadlineExceeded
	}
	close(b.done)
}

// Deadline implements context.Context.
func (b *batch) Deadline() (time.Time, bool) { return b.until, true }

// Done implements context.Context.
func (b *batch) Done() <-chan struct{} { return b.done }

// Err implements context.Context.
func (b *batch) Err() error {
	select {
	case <-b.done:
		return b.err
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
