package send

import (
	"context"
	"sync"
	"time"
)

// batch is some requests that are sent together, and their context: it ends at its deadline, when
// nobody waits for any of them, or when it is answered. A context of the standard library would
// cost four allocations more.
type batch struct {
	sender *Sender
	first  *Request        // of those that are sent together
	values context.Context // of the caller; nil if there are several
	until  time.Time
	era    int32
	calls  int32 // of all requests

	own bool // made by its caller

	// The sender's mu guards:
	wanted int32 // requests that are still waited for
	err    error // not nil when the context has ended
	done   chan struct{}
	ender  Ender

	enders sync.WaitGroup // Ends under way
}

// Run implements workers.Call.
func (b *batch) Run() { b.sender.run(b) }

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
