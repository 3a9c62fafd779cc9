package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
)

var contextRows = []row{{
	name:    "Lock refuses a ctx that has ended",
	promise: "Lock waits until the caller has the lock, or ctx is done. On any error the caller holds nothing.",
	sources: []string{goContext},
	needs:   []need{cancels},
	body:    endedContext,
}, {
	name:    "Lock returns soon after ctx is cancelled while it waits",
	promise: "When ctx ends, Lock returns within milliseconds.",
	sources: []string{goContext, zkContext},
	body:    cancelledWait,
}, {
	name:    "Lock returns soon after the deadline of ctx while it waits",
	promise: "When ctx ends, Lock returns within milliseconds.",
	sources: []string{goContext},
	body:    expiredWait,
}, {
	name:    "the error of an interrupted Lock matches ctx.Err and its cause",
	promise: "When ctx ends the error of Lock matches ctx.Err() and context.Cause(ctx).",
	sources: []string{goContext},
	body:    interruptedMatchesCause,
}, {
	name:    "the error of an interrupted wait matches ErrHeld",
	promise: "If ctx ends during a wait, and the last answer was that another has the lock, the error of Lock matches ErrHeld.",
	sources: []string{mostErrors},
	body:    interruptedMatchesHeld,
}, {
	name:    "a hold outlives the ctx of its Lock",
	promise: "Once Lock has succeeded ctx has no further effect on the hold.",
	sources: []string{contract},
	body:    holdOutlivesContext,
}}

func endedContext(e *env) {
	a, b := e.rivals(e.long, e.long)
	ctx, cancel := context.WithCancelCause(e.Context())
	cancel(errStop)
	err := a.lock(ctx)
	a.want("Lock with a cancelled ctx", err, context.Canceled)
	a.want("Lock with a cancelled ctx", err, errStop)
	past, cancelPast := context.WithDeadline(e.Context(), time.Now().Add(-time.Second))
	defer cancelPast()
	a.want("Lock with a ctx whose deadline has passed", a.lock(past), context.DeadlineExceeded)
	a.wantNoToken("after a Lock that failed")
	a.want("Unlock after a Lock that failed", a.unlock(), locker.ErrNotHeld)
	b.lockBy(e.prompt, "A's Lock had failed, the lock is free")
	b.release()
}

// interrupted has b wait for a lock that a holds, with the ctx of waiting, ends that by end, and
// returns the error of Lock.
func (e *env) interrupted(waiting func() (ctx context.Context, end func())) error {
	a, b := e.rivals(e.long, e.long)
	a.take()
	ctx, end := waiting()
	defer end()
	done := b.start(ctx)
	select {
	case <-time.After(e.settle()):
	case <-ctx.Done():
	case err := <-done:
		e.early(a, b, err)
	}
	end()
	<-ctx.Done()
	select {
	case err := <-done:
		if err == nil {
			a.overlap(b)
		}
		return err
	case <-time.After(e.prompt):
		e.doubtf("B's Lock, waiting for A's hold, had not returned %v after its ctx ended", e.prompt)
		return nil
	}
}

// cancelled is a ctx that ends without a cause.
func (e *env) cancelled() (context.Context, func()) { return context.WithCancel(e.Context()) }

func cancelledWait(e *env) { _ = e.interrupted(e.cancelled) }

func expiredWait(e *env) {
	err := e.interrupted(func() (context.Context, func()) {
		ctx, cancel := context.WithTimeout(e.Context(), 3*e.settle())
		return ctx, func() { <-ctx.Done(); cancel() }
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		e.failf("B's Lock, when the deadline of ctx passed: %v; want an error that matches %q", says(err), context.DeadlineExceeded)
	}
}

func interruptedMatchesCause(e *env) {
	err := e.interrupted(func() (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(e.Context())
		return ctx, func() { cancel(errStop) }
	})
	for _, want := range []error{context.Canceled, errStop} {
		if !errors.Is(err, want) {
			e.failf("B's Lock, when ctx was cancelled with a cause: %v; want an error that matches %q", says(err), want)
		}
	}
}

func interruptedMatchesHeld(e *env) {
	if err := e.interrupted(e.cancelled); !errors.Is(err, locker.ErrHeld) {
		e.doubtf("B's Lock, when ctx was cancelled while A held: %v; want an error that matches %q", says(err), locker.ErrHeld)
	}
}

func holdOutlivesContext(e *env) {
	a, b := e.rivals(e.long, e.long)
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	if err := a.lock(ctx); err != nil {
		e.doubtf("A's Lock of a free lock: %v", err)
	}
	cancel()
	a.excludes(b, e.settle())
	a.prolong()
	a.release()
}
