// Package callctx has the context of a call to a Driver. Most calls are over before anything ends their context, so it
// makes nothing until it is asked for its Done or has ended, and those who know it need not ask: see [Ends].
package callctx

import (
	"context"
	"sync"
	"time"
)

// Context ends as its caller's does, by End, and, if it has an owner, as that one does and when it is time. It must not be
// copied. Its End is due when the call is over.
type Context struct {
	caller context.Context // whose values it has
	owner  context.Context // nil: there is none
	until  time.Time       // if there is an owner

	mu    sync.Mutex
	over  bool          // by End
	cause error         // of that
	ended chan struct{} // closed by End; nil until it is asked for, or where there is an owner
	full  context.Context
	end   context.CancelCauseFunc // of full
	leave func() bool             // the owner
}

var _ context.Context = (*Context)(nil)

// Begin makes c a context that ends as the caller's does, or by End.
func (c *Context) Begin(caller context.Context) { c.caller = caller }

// BeginUntil makes c a context that ends as the caller's and the owner's do, or when it is time. End is for when the call
// is over: its cause is lost, and whoever has asked Ends is not told.
func (c *Context) BeginUntil(caller, owner context.Context, until time.Time) {
	c.caller, c.owner, c.until = caller, owner, until
}

// End ends c, and only the first does. A cause of nil is that of a cancelled context.
func (c *Context) End(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over, c.cause = true, cause
	if c.ended != nil {
		close(c.ended)
	}
	if c.full != nil {
		c.end(cause)
	}
	if c.leave != nil {
		c.leave()
	}
}

// made is c as package context would have made it. The caller holds c.mu.
func (c *Context) made() context.Context {
	if c.full != nil {
		return c.full
	}
	if c.owner == nil {
		c.full, c.end = context.WithCancelCause(c.caller)
	} else {
		caller := c.caller
		if sooner, ok := caller.Deadline(); ok && sooner.Before(c.until) {
			caller = undated{caller}
		}
		var end context.CancelFunc
		c.full, end = context.WithDeadline(caller, c.until)
		c.end = func(error) { end() }
	}
	switch {
	case c.over || c.owner != nil && c.owner.Err() != nil:
		c.end(c.cause)
	case c.owner != nil:
		c.leave = context.AfterFunc(c.owner, func() { c.end(nil) })
	}
	return c.full
}

// undated is a context without the deadline that it says it has. It may never end by it: people override Done and forget
// Deadline, and package context sets no timer of its own for a later one.
type undated struct{ context.Context }

// Deadline implements context.Context.
func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made().Done()
}

// Err implements context.Context.
func (c *Context) Err() error {
	if c.lasts() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made().Err()
}

// Cause is that of what ended c first, as [context.Cause] has it.
func (c *Context) Cause() error {
	if c.lasts() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return context.Cause(c.made())
}

// lasts says that nothing has ended c.
func (c *Context) lasts() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.full != nil:
		return c.full.Err() == nil
	case c.over || c.caller.Err() != nil:
		return false
	default:
		return c.owner == nil || c.owner.Err() == nil && time.Now().Before(c.until)
	}
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) {
	deadline, ok := c.caller.Deadline()
	if c.owner != nil && (!ok || c.until.Before(deadline)) {
		return c.until, true
	}
	return deadline, ok
}

// Value implements context.Context: those of the caller's, and what package context looks for.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	full := c.full
	c.mu.Unlock()
	if full != nil {
		return full.Value(key)
	}
	return c.caller.Value(key)
}

// Ends are how ctx ends: when either channel is closed, or at a time unless that is zero.
func Ends(ctx context.Context) (one, other <-chan struct{}, until time.Time) {
	c, ok := ctx.(*Context)
	if !ok {
		return ctx.Done(), nil, until
	}
	if c.owner != nil {
		return c.caller.Done(), c.owner.Done(), c.until
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = make(chan struct{})
		if c.over {
			close(c.ended)
		}
	}
	return c.caller.Done(), c.ended, until
}
