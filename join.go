package locker

import (
	"context"
	"errors"
)

// Join is Do for a function that may be called by another that has the lock already. If ctx carries a hold of this name, taken by this
// Client, Join calls f under that hold: without a request, and with the same token. The call that took the hold ends it: the end of Join releases nothing. If
// ctx carries none, Join takes the lock, as Acquire does, and releases it after f.
//
// A context carries a hold if it is the one that Do, TryDo or Join has given its function, or one that [Hold.Context] has returned, or derived from
// these. For a hold of another name or another Client, Join waits like anybody else.
//
// The h that f gets is the hold. This Mutex holds nothing meanwhile, so its FencingToken returns 0. The context of f ends like that of Do. Join returns
// f's error joined with that of Unlock, or, if it has joined, with [Hold.Err]: ErrLost or ErrNotHeld if the hold ended before f did. That is by the
// clock alone. The call that took the hold asks the backend, when it releases it.
//
// A hold that has ended is not joined, and Join takes no other instead: what was done under the first and what f does would not be under one lock. Then
// Join returns ErrLost or ErrNotHeld, and does not call f. So a goroutine that outlives the Do whose context it has gets ErrNotHeld.
//
// Functions that have joined the same hold do not exclude each other. A share, as [RWMutex.RDo] takes it, is not joined: Join returns ErrUpgrade.
func (m *Mutex) Join(ctx context.Context, f func(ctx context.Context, h *Hold) error) error {
	h, err := m.carriedBy(ctx)
	if err != nil {
		return wrap("join", m.name, err)
	}
	end := func() error { return wrap("join", m.name, h.Err()) }
	if h == nil {
		if h, err = m.Acquire(ctx); err != nil {
			return err
		}
		end = func() error { return h.Unlock(context.WithoutCancel(ctx)) }
	}
	return h.during(ctx, func(ctx context.Context) error { return f(ctx, h) }, end)
}

// carried is the key under which a [Hold.Context] has its hold.
type carried struct {
	client *Client
	name   string
}

// Value implements [context.Context].
func (c *holdContext) Value(key any) any {
	if key == any(carried{c.hold.client, c.hold.name}) {
		return c.hold
	}
	return c.Context.Value(key)
}

// carriedBy reports whether ctx is a context of h, or derived from one.
func (h *Hold) carriedBy(ctx context.Context) bool {
	return ctx.Value(carried{h.client, h.name}) == any(h)
}

// carriedBy returns the hold of this lock that ctx carries, or nil, or why it cannot be joined.
func (m *Mutex) carriedBy(ctx context.Context) (*Hold, error) {
	h, _ := ctx.Value(carried{m.client, m.name}).(*Hold)
	if h == nil || m.invalid != nil {
		return nil, m.invalid
	}
	over := h.Err()
	if over == nil && h.isShared() {
		return nil, ErrUpgrade
	}
	if ctx.Err() != nil {
		return nil, interrupted(ctx, over)
	}
	return h, over
}

// during calls f with a context that ends with h, then calls end, and returns the errors of both. If f panics, end is called, and the
// panic goes on.
func (h *Hold) during(ctx context.Context, f func(context.Context) error, end func() error) (err error) {
	own, cancel := h.Context(ctx, 0)
	defer func() {
		cancel()
		if eerr := end(); eerr != nil {
			err = errors.Join(err, eerr)
		}
	}()
	return f(own)
}
