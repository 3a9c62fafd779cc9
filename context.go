package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/internal/carry"
	"github.com/go-locker/locker/internal/clock"
)

// Context returns a context that ends with this hold, or earlier: when reserve is all that is left
// until Deadline. The holder has that long to stop what it does, to kill a process or to close a
// file.
//
// Each renewal and each Extend moves the end, like the Deadline. Once the context has ended it
// stays so, even if a later renewal succeeds: the hold then lasts, and awaits its Unlock. A renewal
// is first tried when two thirds of the TTL are left, so a larger reserve ends the context before
// the first renewal. If the time until Deadline is reserve or less, the returned context has
// already ended. With a reserve of 0 or less it ends at the loss.
//
// Err, Done and [context.Cause] look at the clock: after a pause of the process they are right at
// the first look, before any timer has fired. That is so for each hold that the context carries. A
// context that is derived from this one ends when a timer fires, or when somebody calls Err, Done
// or [context.Cause] of this one.
//
// The cause is [ErrLost] after a loss, ErrNotHeld after Unlock, and the cause of ctx if ctx ended
// first. Unlock ends the context before it releases the lock. If Unlock is called with this
// context, or with one derived from it, it ends the context right before it returns. If the reserve
// is reached, the cause is an error that matches none of these, because nothing is lost yet. The
// context has the values and the deadline of ctx. It does not report the hold's Deadline as its
// own, because the deadline of a context must not move.
//
// Call the returned function when the work is done, as with [context.WithCancel]. [Client.Close]
// waits for that before it releases the hold.
func (h *Hold) Context(ctx context.Context, reserve time.Duration) (context.Context, context.CancelFunc) {
	work := &holdContext{outer: innermost(ctx)}
	work.ending.reserve = max(reserve, 0)
	work.Context, work.ending.tell = context.WithCancelCause(context.WithValue(unlooked(ctx), carry.Innermost{}, work))
	work.Add(h)
	return work, work.cancel
}

// worked notes that the work under one context of the hold has ended.
func (h *Hold) worked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.working--; h.working == 0 && h.idle != nil {
		close(h.idle)
		h.idle = nil
	}
}

// untilIdle returns a channel that is closed when the work under a hold that was lost has ended, or
// nil if there is none.
func (h *Hold) untilIdle() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.working > 0 && h.idle == nil {
		h.idle = make(chan struct{})
	}
	return h.idle
}

// awaitWork waits until idle is closed. If the work still goes on at the end of ctx, or at the
// deadline, the hold is left to expire, and the error says so.
func (h *Hold) awaitWork(ctx context.Context, idle <-chan struct{}) error {
	expired := time.NewTimer(time.Until(h.Deadline()))
	defer expired.Stop()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	case <-expired.C:
	}
	h.leave()
	return errors.New("the work under the lock has not ended: the lock is left to expire")
}

// unlooked returns what to derive from ctx from: package context asks a parent for Done, and one
// that looks at its clock, and at those of the holds around it, would do so for each of many.
func unlooked(ctx context.Context) context.Context {
	if c, ok := ctx.(*holdContext); ok {
		return c.Context
	}
	return ctx
}

// holdContext looks at the clock whenever it is asked.
type holdContext struct {
	context.Context // has holdContext as the value of carry.Innermost, and does not look at the clock

	holds  []*Hold      // one, or all of a multi.Hold
	ending ending       // of each hold
	outer  *holdContext // the innermost that its parent is or derives from; or nil
	done   atomic.Bool  // the work under it has ended
}

// Add has the context end with h, too. Package multi calls it before anybody else has the context.
func (c *holdContext) Add(h *Hold) {
	c.holds = append(c.holds, h)
	h.atEnd(&c.ending)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.working++
}

// cancel is the context's CancelFunc.
func (c *holdContext) cancel() {
	c.ending.tell(nil)
	if c.done.Swap(true) {
		return
	}
	for _, h := range c.holds {
		h.forget(&c.ending)
		h.worked()
	}
}

// End ends the contexts of h, which is unlocked.
func (*holdContext) End(h *Hold) { h.tellEndings(ErrNotHeld) }

// innermost returns the innermost holdContext that ctx is or derives from, or nil.
func innermost(ctx context.Context) *holdContext {
	c, _ := ctx.Value(carry.Innermost{}).(*holdContext)
	return c
}

// Carries reports whether c, which may be nil, is a context of h or derives from one.
func (c *holdContext) Carries(h *Hold) bool {
	for c != nil && !slices.Contains(c.holds, h) {
		c = c.outer
	}
	return c != nil
}

// carried returns the innermost hold of that lock which lasts, or else the innermost, or nil.
func (c *holdContext) carried(id lockID) (innermost *Hold) {
	for ; c != nil; c = c.outer {
		i := slices.IndexFunc(c.holds, func(h *Hold) bool { return h.lockID == id })
		if i < 0 {
			continue
		}
		if c.holds[i].Err() == nil {
			return c.holds[i]
		}
		innermost = cmp.Or(innermost, c.holds[i])
	}
	return innermost
}

// look ends the context if a hold that it carries is lost, or if a reserve is reached. Another
// goroutine may have noticed that, and not have ended this context yet. An Unlock ends it when it
// is time.
func (c *holdContext) look() {
	if c.outer != nil {
		c.outer.look()
	}
	e := &c.ending
	for _, h := range c.holds {
		switch err := h.expireIfDue(); {
		case c.Context.Err() != nil:
			return
		case errors.Is(err, ErrLost):
			e.tell(err)
		case err == nil && e.reserve > 0 && time.Until(h.Deadline()) <= e.reserve:
			e.tell(h.reachedReserve(e.reserve))
		}
	}
}

// Err implements [context.Context].
func (c *holdContext) Err() error {
	c.look()
	return c.Context.Err()
}

// Done implements [context.Context].
func (c *holdContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// ending is a callback when a hold ends, or is about to.
type ending struct {
	reserve time.Duration // how long before the deadline
	tell    func(cause error)
}

// atEnd makes sure that e.tell is called once: when the hold ends, before lose returns; or when
// e.reserve is left until the deadline; or now if it is so already.
func (h *Hold) atEnd(e *ending) {
	h.mu.Lock()
	h.endings = append(h.endings, e)
	if h.state == held && e.reserve > 0 {
		h.client.schedule(h, clock.Now(), h.nextEvent())
	}
	h.mu.Unlock()
	if over := h.expireIfDue(); over != nil && h.forget(e) {
		e.tell(over)
	}
}

// forget undoes atEnd, and reports whether there was anything to undo.
func (h *Hold) forget(e *ending) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.endings)
	h.endings = slices.DeleteFunc(h.endings, func(other *ending) bool { return other == e })
	return len(h.endings) < before
}

// endContexts ends the contexts of a hold that a call with ctx has unlocked. If ctx is one of them,
// they end by atReturn; or still later, if the call is one of an Unlock of several holds.
func (h *Hold) endContexts(ctx context.Context) (atReturn func()) {
	if !innermost(ctx).Carries(h) {
		h.tellEndings(ErrNotHeld)
		return func() {}
	}
	if later, ok := ctx.Value(carry.Later{}).(func(*Hold) bool); ok && later(h) {
		return func() {}
	}
	return func() { h.tellEndings(ErrNotHeld) }
}

// tellEndings tells all of them of the end of the hold.
func (h *Hold) tellEndings(cause error) {
	h.mu.Lock()
	endings := h.endings
	h.endings = nil
	h.mu.Unlock()
	for _, e := range endings {
		e.tell(cause)
	}
}

// reserved returns, and removes, the endings whose reserve is reached. The caller holds h.mu.
func (h *Hold) reserved(now time.Time) (reached []*ending) {
	left := h.deadline.Sub(now)
	h.endings = slices.DeleteFunc(h.endings, func(e *ending) bool {
		if left > e.reserve {
			return false
		}
		reached = append(reached, e)
		return true
	})
	return reached
}

// reachedReserve returns the cause of a context that ends before its hold.
func (h *Hold) reachedReserve(reserve time.Duration) error {
	return fmt.Errorf("the lock %q was not renewed: no more than %v is left of the hold", h.name, reserve)
}
