package redisscript

import (
	"context"
	"slices"
	"sync"
	"time"
)

// batch is some requests that are sent together, and their context: it ends at its deadline, when
// nobody waits for any of them, or when it is answered. A context of the standard library would
// cost four allocations more.
type batch struct {
	sender *sender
	first  *request        // of those that are sent together
	values context.Context // of the caller; nil if there are several
	until  time.Time
	era    int32
	calls  int32 // of all requests

	own bool // made by its caller

	// The sender's mu guards:
	next, prev *batch // in flight
	wanted     int32  // requests that are still waited for
	err        error  // not nil when the context has ended
	done       chan struct{}
	ender      Ender

	enders sync.WaitGroup // Ends under way
}

// load returns a batch of the requests that wait, or of some. The caller holds s.mu.
func (s *sender) load(now time.Time) *batch {
	n, calls := 1, len(s.waiting[0].calls)
	for n < len(s.waiting) && calls+len(s.waiting[n].calls) <= maxCalls {
		calls += len(s.waiting[n].calls)
		n++
	}
	s.latest = now
	s.inFlight++
	b := &batch{sender: s, era: s.era, calls: int32(calls), wanted: int32(n)}
	if n == 1 {
		b.values = s.waiting[0].ctx
	}
	for _, r := range slices.Backward(s.waiting[:n]) {
		r.batch, r.next, b.first = b, b.first, r
		if r.until.After(b.until) {
			b.until = r.until
		}
	}
	s.waiting = slices.Delete(s.waiting, 0, n)
	if b.next = s.batches; b.next != nil {
		b.next.prev = b
	}
	s.batches = b
	return b
}

// Run makes all requests of b, in one round trip, and sends further batches for as long as requests
// wait. It implements workers.Call.
func (b *batch) Run() {
	for b != nil {
		calls, replies := b.first.calls, b.first.replies
		if b.first.next != nil {
			calls, replies = make([]Call, 0, b.calls), make([]Reply, b.calls)
			for r := b.first; r != nil; r = r.next {
				calls = append(calls, r.calls...)
			}
		}
		Run(b, b.sender.runner, calls, replies)
		next := b.finish()
		for r, following := b.first, (*request)(nil); r != nil; r = following {
			following, r.next = r.next, nil // before its caller has it back
			replies = replies[copy(r.replies, replies):]
			r.ended.Store(true)
			r.done <- true
		}
		b = next
	}
}

// runHere makes b, of r alone, in the goroutine of its caller, and has a worker send what has come
// meanwhile. It returns what the error of a request means whose context has ended. A hook of the
// client library may panic.
func (b *batch) runHere(r *request) (why error) {
	s := b.sender
	defer s.direct.Done()
	defer func() {
		if next := b.finish(); next != nil {
			s.workers.Do(next)
		}
	}()
	if r.redlock {
		Run(r.ctx, s.runner, r.calls, r.replies)
		return nil
	}
	Run(b, s.runner, r.calls, r.replies)
	return errNoAnswer
}

// finish ends b, which is answered, and returns the batch that comes after it, if any does.
func (b *batch) finish() (next *batch) {
	s := b.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	b.end(now)
	for r := b.first; r != nil; r = r.next {
		if r.watch != nil {
			r.watch.stop()
		}
	}
	if b.next != nil {
		b.next.prev = b.prev
	}
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		s.batches = b.next
	}
	if b.era != s.era { // it was overdue, and another has taken over
		return nil
	}
	if s.inFlight--; len(s.waiting) > 0 {
		return s.load(now)
	}
	return nil
}

// end ends b as a context. The caller holds the sender's mu.
func (b *batch) end(now time.Time) {
	if b.err != nil {
		return
	}
	if b.err = context.Canceled; !now.Before(b.until) {
		b.err = context.DeadlineExceeded
	}
	if b.done != nil {
		close(b.done)
	}
	if b.ender != nil {
		b.enders.Go(b.ender.End)
	}
}

// Ender breaks what a request is waiting for.
type Ender interface{ End() }

// AtEnd has e.End called when ctx, of a Runner, ends, unless Stop is called before. It is
// context.AfterFunc, without its allocations where ctx is a batch.
func AtEnd(ctx context.Context, e Ender) Ending {
	b, ok := ctx.(*batch)
	if !ok {
		ended := make(chan struct{})
		return Ending{ended: ended, stop: context.AfterFunc(ctx, func() { e.End(); close(ended) })}
	}
	b.sender.mu.Lock()
	defer b.sender.mu.Unlock()
	if b.ender = e; b.err != nil {
		b.enders.Go(e.End)
	}
	return Ending{batch: b}
}

// Ending is what AtEnd has arranged.
type Ending struct {
	batch *batch
	stop  func() bool // of another context
	ended chan struct{}
}

// Stop undoes AtEnd, or waits until End has returned.
func (e Ending) Stop() {
	switch b := e.batch; {
	case b != nil:
		b.sender.mu.Lock()
		b.ender = nil
		b.sender.mu.Unlock()
		b.enders.Wait()
	case !e.stop():
		<-e.ended
	}
}

// Deadline implements context.Context.
func (b *batch) Deadline() (time.Time, bool) { return b.until, true }

// Done implements context.Context.
func (b *batch) Done() <-chan struct{} {
	b.sender.mu.Lock()
	defer b.sender.mu.Unlock()
	if b.done == nil {
		if b.done = make(chan struct{}); b.err != nil {
			close(b.done)
		}
	}
	return b.done
}

// Err implements context.Context.
func (b *batch) Err() error {
	b.sender.mu.Lock()
	defer b.sender.mu.Unlock()
	return b.err
}

// Value implements context.Context.
func (b *batch) Value(key any) any {
	if b.values == nil {
		return nil
	}
	return b.values.Value(key)
}
