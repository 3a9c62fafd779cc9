package waiting

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/contention"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
)

// Cancel are the scenarios of a Lock that is cancelled.
var Cancel = []scenario.Row{{
	Name: "a cancelled wait leaves nothing behind",
	Promise: "Everything that a failed attempt left behind (key, queue entry, goroutine) is " +
		"cleaned up, and does not hold up those behind it.",
	Sources: []string{source.RedsyncCancel, source.ZkContext, source.ZkRecipe},
	Body: func(e *party.Env) {
		a, b, c := e.Trio(e.Long)
		a.Take()
		ctx, cancel := context.WithCancel(e.Context())
		defer cancel()
		first := b.StartLock(ctx)
		second := c.StartLock(e.Context())
		cancel()
		e.Gone(b, first)
		a.Release()
		c.Granted(second, e.Prompt, "B, who waited before it, gave up, and A has unlocked").Release()
		time.Sleep(e.Settle()) // a leftover of B may claim the lock before C does
		c.Promptly("B gave up waiting, A and C have unlocked")
		c.Prolong().Release()
	},
}, {
	Name:    "a Lock cancelled at any moment leaves nothing behind",
	Promise: "On any error of Lock the caller holds nothing, whenever ctx ended.",
	Sources: []string{source.RedsyncCancel},
	Chance:  true,
	// Lock is cancelled at about the moment of the grant, by time and by look in turns.
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		start := time.Now()
		a.Take()
		next := aim{about: time.Since(start), looks: 1}
		a.Release()
		end := time.Now().Add(contention.Time * 3 / 4)
		for i := 0; i < 1000 && time.Now().Before(end); i++ {
			byLook := i%2 == 1
			ctx, cancel := context.WithTimeout(e.Context(), next.about/2+rand.N(next.about))
			if byLook {
				cancel()
				ctx, cancel = cancelledAtLook(e.Context(), next.looks)
			}
			err := a.Lock(ctx)
			cancel()
			next.adapt(byLook, err == nil)
			if err == nil {
				a.Drop()
				continue
			}
			b.Promptly("A's Lock was interrupted (" + err.Error() + ")")
			b.Drop()
		}
	},
}, {
	Name:    "a grant to a waiter whose ctx ends just then is given back",
	Promise: "On any error of Lock the caller holds nothing, also if the grant arrives as ctx ends.",
	Sources: []string{source.Semaphore, source.RedsyncCancel},
	Chance:  true,
	// B is cancelled at about the moment in which A's Unlock makes it the holder. C waits behind B,
	// or comes afterwards.
	Body: func(e *party.Env) {
		h := &handover{Env: e, aim: aim{looks: 1}}
		h.a, h.b, h.c = e.Trio(e.Long)
		h.first()
		end := time.Now().Add(contention.Time)
		for i := 0; i < 2000 && time.Now().Before(end); i++ {
			h.round(i%moments, i/moments%2 == 1)
		}
	},
}}

// aim is when a Lock is cancelled, to hit the moment of its grant: at a time, or at the nth look at
// ctx, because no timer hits a step that takes a Locker a microsecond.
type aim struct {
	about time.Duration // from the start, or from another's Unlock
	looks int
}

// adapt has the next cancellation come earlier after a grant, and later after an error.
func (a *aim) adapt(byLook, granted bool) {
	switch {
	case byLook && granted:
		a.looks = 1
	case byLook:
		a.looks++
	case granted:
		a.about -= a.about / 20
	default:
		a.about += a.about/20 + time.Microsecond
	}
}

// watchedContext is cancelled by a given number of looks at it: calls of Done or Err.
type watchedContext struct {
	context.Context
	cancel context.CancelFunc
	looks  atomic.Int64
}

func cancelledAtLook(parent context.Context, looks int) (context.Context, context.CancelFunc) {
	w := &watchedContext{}
	w.Context, w.cancel = context.WithCancel(parent)
	w.looks.Store(int64(looks))
	return w, w.cancel
}

func (w *watchedContext) look() {
	if w.looks.Add(-1) == 0 {
		w.cancel()
	}
}

func (w *watchedContext) Done() <-chan struct{} {
	w.look()
	return w.Context.Done()
}

func (w *watchedContext) Err() error {
	w.look()
	return w.Context.Err()
}

// Context are the scenarios of the end of a ctx.
var Context = []scenario.Row{{
	Name:    "Lock refuses a ctx that has ended",
	Promise: "Lock waits until the caller has the lock, or ctx is done. On any error the caller holds nothing.",
	Sources: []string{source.GoContext},
	Needs:   []need.Need{need.Cancels},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		ctx, cancel := context.WithCancelCause(e.Context())
		cancel(party.ErrStop)
		err := a.Lock(ctx)
		a.Want("Lock with a cancelled ctx", err, context.Canceled)
		a.Want("Lock with a cancelled ctx", err, party.ErrStop)
		past, cancelPast := context.WithDeadline(e.Context(), time.Now().Add(-time.Second))
		defer cancelPast()
		a.Want("Lock with a ctx whose deadline has passed", a.Lock(past), context.DeadlineExceeded)
		a.WantNoToken("after a Lock that failed")
		a.Want("Unlock after a Lock that failed", a.Unlock(), locker.ErrNotHeld)
		b.LockBy(e.Prompt, "A's Lock had failed, the lock is free").Release()
	},
}, {
	Name:    "Lock returns soon after ctx is cancelled while it waits",
	Promise: "When ctx ends, Lock returns within milliseconds.",
	Sources: []string{source.GoContext, source.ZkContext},
	Body:    func(e *party.Env) { interrupted(e) },
}, {
	Name:    "Lock returns soon after the deadline of ctx while it waits",
	Promise: "When ctx ends, Lock returns within milliseconds.",
	Sources: []string{source.GoContext},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		a.Take()
		limit := 3 * e.Settle()
		ctx, cancel := context.WithTimeout(e.Context(), limit)
		defer cancel()
		select {
		case err := <-b.Start(ctx):
			if err == nil || !party.Ended(ctx, err) {
				e.Early(a, b, err)
			}
			b.WantEnded("Lock", err, context.DeadlineExceeded)
		case <-time.After(limit + e.Prompt):
			e.Doubtf("B's Lock, waiting for A's hold, had not returned %v after the deadline of its ctx", e.Prompt)
		}
	},
}, {
	Name:    "the error of an interrupted Lock matches ctx.Err and its cause",
	Promise: "When ctx ends the error of Lock matches ctx.Err() and context.Cause(ctx).",
	Sources: []string{source.GoContext},
	Body:    func(e *party.Env) { interrupted(e, context.Canceled, party.ErrStop) },
}, {
	Name:    "the error of an interrupted wait matches ErrHeld",
	Promise: "If ctx ends during a wait, and the last answer was that another has the lock, the error of Lock matches ErrHeld.",
	Sources: []string{source.MostErrors},
	Body:    func(e *party.Env) { interrupted(e, locker.ErrHeld) },
}, {
	Name:    "a hold outlives the ctx of its Lock",
	Promise: "Once Lock has succeeded ctx has no further effect on the hold.",
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.Long, e.Long)
		ctx, cancel := context.WithCancel(e.Context())
		defer cancel()
		if err := a.Lock(ctx); err != nil {
			e.Doubtf("A's Lock of a free lock: %v", err)
		}
		cancel()
		a.Excludes(b, e.Settle())
		a.Prolong().Release()
	},
}}

// interrupted cancels b's Lock, with a cause, while a holds the lock, and ends the trial unless the
// error matches all targets.
func interrupted(e *party.Env, targets ...error) {
	a, b := e.Rivals(e.Long, e.Long)
	a.Take()
	err, cancelled := b.Interrupted("Lock", b.Lock)
	if err == nil || !cancelled {
		e.Early(a, b, err)
	}
	b.WantEnded("Lock", err, targets...)
}

// handover is a lock that A holds and B waits for. C is to get it if B gave up.
type handover struct {
	*party.Env
	a, b, c *party.Party
	queued  time.Duration // after which a Lock that was called should be waiting
	aim                   // at B's grant
}

// The moments in which B is cancelled.
const (
	aboutThen = iota // when A's Unlock makes it the holder, or thereabouts
	byLook           // at a look at ctx, see watchedContext
	atOnce           // just before A's Unlock: what B does about it comes when the lock is its own
	moments
)

// first measures a round in which nobody is cancelled.
func (h *handover) first() {
	start := time.Now()
	h.a.Take()
	h.queued = 2*time.Since(start) + time.Millisecond
	done := h.b.Start(h.Context())
	time.Sleep(h.queued)
	start = time.Now()
	h.a.Drop()
	h.b.Served(done)
	h.about = time.Since(start)
	h.b.Drop()
}

func (h *handover) round(moment int, queue bool) {
	ctx, cancel := context.WithCancel(h.Context())
	if moment == byLook {
		ctx, cancel = cancelledAtLook(h.Context(), h.looks)
	}
	defer cancel()
	h.a.Take()
	first := h.b.Start(ctx)
	time.Sleep(h.queued)
	var second <-chan error
	if queue {
		second = h.pass()
		time.Sleep(h.queued)
	}
	switch moment {
	case aboutThen:
		end := time.Now().Add(h.about/2 + rand.N(max(1, h.about)))
		h.Spawn(func() { sleepExactly(end); cancel() })
	case atOnce:
		cancel()
	}
	h.a.Drop()
	err := <-first
	if moment != atOnce {
		h.adapt(moment == byLook, err == nil)
	}
	if err == nil {
		h.b.Drop()
	}
	switch {
	case queue:
		h.served(second, err)
	case err != nil:
		h.c.Promptly("A has unlocked, B's Lock was interrupted (" + err.Error() + ")")
		h.c.Drop()
	}
}

// pass has C wait for the lock, and give it back at once: where the queue is not fair B may come
// after C.
func (h *handover) pass() <-chan error {
	done := make(chan error, 1)
	h.Spawn(func() {
		err := h.c.Lock(h.Context())
		if err == nil {
			err = h.c.Unlock()
		}
		done <- err
	})
	return done
}

// served waits for C, which waits too.
func (h *handover) served(done <-chan error, err error) {
	select {
	case cs := <-done:
		if cs != nil && !errors.Is(cs, locker.ErrLost) {
			h.Doubtf("C's Lock, or its Unlock: %v", cs)
		}
	case <-time.After(h.Prompt):
		h.Doubtf("A has unlocked, and B's Lock said %s, but C, who waited behind B, has no lock after %v", party.Says(err), h.Prompt)
	}
}

// sleepExactly returns at that time: a timer may be late by a millisecond.
func sleepExactly(end time.Time) {
	time.Sleep(time.Until(end) - 2*time.Millisecond)
	for time.Now().Before(end) {
		runtime.Gosched()
	}
}
