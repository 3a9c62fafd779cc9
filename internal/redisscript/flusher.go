package redisscript

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// flusher sends batches, one after the other, for as long as requests wait.
type flusher struct {
	sender   *sender
	requests []*request // of the batch under way
	calls    []Call     // of several requests
	replies  []Reply    // to those
}

// load takes the requests that wait, or some. The caller holds the sender's mutex.
func (f *flusher) load() {
	s := f.sender
	n, calls := 0, 0
	for _, r := range s.waiting {
		if calls += len(r.calls); n > 0 && calls > maxCalls {
			break
		}
		n++
	}
	f.requests = append(f.requests[:0], s.waiting[:n]...)
	if s.waiting = slices.Delete(s.waiting, 0, n); len(s.waiting) == 0 {
		s.late.Stop()
	} else {
		s.late.Reset(overdue)
	}
}

// Run implements workers.Call.
func (f *flusher) Run() {
	for more := true; more; more = f.next() {
		f.flush()
	}
}

// next reports whether there is another batch, which it loads.
func (f *flusher) next() bool {
	s := f.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.flushers, f)
	if i < 0 { // it was overdue, and another has taken over; or each request goes by itself
		return false
	}
	if len(s.waiting) == 0 {
		s.flushers = slices.Delete(s.flushers, i, i+1)
		s.idle = append(s.idle, f)
		return false
	}
	f.load()
	return true
}

// flush sends the requests that are still wanted, and returns when all are answered.
func (f *flusher) flush() {
	b := &batch{done: make(chan struct{})}
	defer f.forget()
	defer b.end()
	sent := f.claim(b)
	switch len(sent) {
	case 0:
		return
	case 1:
		b.values = sent[0].ctx
		f.sender.run(b, sent[0].calls, sent[0].replies)
	default:
		for _, r := range sent {
			f.calls = append(f.calls, r.calls...)
		}
		f.replies = slices.Grow(f.replies, len(f.calls))[:len(f.calls)] // empty, see forget
		f.sender.run(b, f.calls, f.replies)
		from := 0
		for _, r := range sent {
			from += copy(r.replies, f.replies[from:])
		}
	}
	for _, r := range sent {
		r.ended.Store(true)
		r.done <- struct{}{}
	}
}

// claim returns the requests that nobody has dropped. They are of b from now on.
func (f *flusher) claim(b *batch) []*request {
	sent := f.requests[:0]
	b.wanted.Store(1)
	for _, r := range f.requests {
		b.wanted.Add(1)
		r.batch = b
		if !r.fate.CompareAndSwap(0, isSent) {
			b.wanted.Add(-1)
			continue
		}
		sent = append(sent, r)
		if r.until.After(b.until) {
			b.until = r.until
		}
	}
	b.unwanted() // by this loop
	return sent
}

// forget forgets a batch: what is idle is not to keep leases, nor what their callers had in their contexts.
func (f *flusher) forget() {
	clear(f.requests)
	clear(f.calls)
	clear(f.replies)
	f.calls, f.replies = f.calls[:0], f.replies[:0]
}

// batch is some requests that are sent together, and their context: it ends when nobody waits for any of them, which is by its
// deadline, or when it has been sent and answered. A context of the standard library would cost four allocations more.
type batch struct {
	values context.Context // of the one who asks; nil if there are several
	until  time.Time
	wanted atomic.Int32 // requests that are still waited for, and one while they are claimed
	done   chan struct{}
	once   sync.Once
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

func (b *batch) end() { b.once.Do(func() { close(b.done) }) }

// unwanted takes off one that nobody waits for any more.
func (b *batch) unwanted() {
	if b.wanted.Add(-1) == 0 {
		b.end()
	}
}
