package thirdparty

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
)

// adapter is a locker.Locker over a library that grants holds. It does what its user would have to do: it keeps the
// current hold, guards it, and says what the library says in the words of the contract.
type adapter struct {
	lock, try func(context.Context) (*hold, error)

	mu   sync.Mutex
	held *hold // nil without one
}

// hold is what a library gives to a holder.
type hold struct {
	extend, release func(context.Context) error
	lost            func() bool      // what the library knows without a request; nil if it never does
	until           func() time.Time // when it expires; nil if the library does not say
	token           uint64           // 0 if it has none

	gone atomic.Bool // a request said so
}

func (h *hold) isLost() bool { return h.gone.Load() || h.lost != nil && h.lost() }

// Lock waits until the lock is held, or ctx ends.
func (a *adapter) Lock(ctx context.Context) error { return a.acquire(ctx, a.lock) }

func (a *adapter) acquire(ctx context.Context, take func(context.Context) (*hold, error)) error {
	if h := a.current(); h != nil && h.isLost() {
		return locker.ErrLost
	}
	h, err := take(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	a.mu.Lock()
	old := a.held
	if old == nil {
		a.held = h
	}
	a.mu.Unlock()
	if old == nil {
		return nil
	}
	old.gone.Store(true) // it was granted once more before its Unlock
	return errors.Join(locker.ErrLost, h.release(ctx))
}

// interrupted adds why ctx ended.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return errors.Join(err, ctx.Err(), context.Cause(ctx))
}

func (a *adapter) current() *hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// Unlock ends the hold.
func (a *adapter) Unlock(ctx context.Context) error {
	a.mu.Lock()
	h := a.held
	a.held = nil
	a.mu.Unlock()
	if h == nil {
		return locker.ErrNotHeld
	}
	lost := h.isLost() // before its own release may make it look so
	err := h.release(ctx)
	if lost {
		return locker.ErrLost
	}
	return interrupted(ctx, err)
}

// Extend makes the hold last one TTL from now.
func (a *adapter) Extend(ctx context.Context) error {
	h := a.current()
	switch {
	case h == nil:
		return locker.ErrNotHeld
	case h.isLost():
		return locker.ErrLost
	}
	err := h.extend(ctx)
	if errors.Is(err, locker.ErrLost) {
		h.gone.Store(true)
	}
	return err
}

// FencingToken is the library's, if it has one.
func (a *adapter) FencingToken() uint64 {
	h := a.current()
	if h == nil || h.isLost() {
		return 0
	}
	return h.token
}

// trier is an adapter whose library has something like TryLock.
type trier struct{ *adapter }

// TryLock makes one attempt.
func (t trier) TryLock(ctx context.Context) error { return t.acquire(ctx, t.try) }
