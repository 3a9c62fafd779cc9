package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// Unlock ends this hold and no other. It returns by the hold's deadline, even if ctx ends later. It
// returns ErrLost if the hold had ended before. A second call returns ErrNotHeld. See [Locker].
//
// If ctx has ended, or ends meanwhile, Unlock still ends the hold. It returns within milliseconds.
// If the release was not answered by then, the error matches ctx.Err(), and the release goes on in
// the background: others get the lock soon, but the caller does not learn whether the hold was
// still valid. To learn that, pass [context.WithoutCancel](ctx).
func (h *Hold) Unlock(ctx context.Context) error {
	return h.client.observed(ctx, opUnlock, h.name, func(ctx context.Context) Result {
		return Result{Token: h.token, Err: h.unlock(ctx)}
	})
}

// Do calls f, waits for it, and unlocks, as [Mutex.Do] does with the hold that it has taken. It
// returns f's error joined with that of Unlock.
func (h *Hold) Do(ctx context.Context, f func(context.Context) error) error {
	return h.during(ctx, f, func() error { return h.Unlock(context.WithoutCancel(ctx)) })
}

func (h *Hold) unlock(ctx context.Context) error {
	c := h.client
	if h.keptFor() > 0 {
		inDoubt := h.extend(ctx) // a loss is what abandon returns
		if err := h.abandon(ctx); err != nil {
			return err
		}
		h.cleanUpAfter(h.keptFor())
		return inDoubt
	}
	deadline, err := h.conclude()
	if err != nil {
		return err
	}
	defer c.calls.Done()
	atReturn := h.endContexts(ctx)
	defer atReturn()
	end := h.howEnded(CauseUnlocked, deadline) // as it is now; reported after the release
	if tell := c.observers.Ended; tell != nil {
		defer func() { tell(ctx, h.id(), end) }()
	}
	r := releaser{hold: h, ctx: ctx, deadline: deadline}
	for left := deadline.Sub(clock.Now()); left > 0 && ctx.Err() == nil; left = deadline.Sub(clock.Now()) {
		if r.try(left) {
			if errors.Is(r.err, ErrLost) {
				end.Cause = CauseRevoked
			}
			if r.err == ErrLost { //nolint:errorlint // one that wraps it has more to say
				return &lossError{CauseRevoked}
			}
			return r.err
		}
		if r.tries == foregroundTries {
			break
		}
		_ = clock.Sleep(ctx, min(r.pause(), deadline.Sub(clock.Now())))
	}
	later := r
	later.ctx = context.WithoutCancel(ctx)
	c.spawn(func() {
		if !later.untilAnswered(c.background) && h.extendInDoubt.Load() {
			h.cleanUp() // it may last, by an extension that nobody heard of
		}
	})
	switch err := cmp.Or(r.err, errNoAnswer); {
	case ctx.Err() != nil:
		return interrupted(ctx, nil)
	case !clock.Now().Before(deadline):
		return fmt.Errorf("%w: not released by its deadline: %w", ErrLost, err)
	default:
		return err
	}
}

// foregroundTries is how many releases that fail an Unlock waits for.
const foregroundTries = 3

// Abandon ends this hold, and leaves the lock taken until it expires. Nobody else gets it before
// Deadline, even if this process crashes or closes the Client. It is free at the backend within one
// TTL. Abandon makes no request and does not wait. To keep the lock for a whole TTL from now, call
// Extend before Abandon. To keep a lock for a minimum time, use [AtLeast].
//
// It returns ErrLost if the hold had ended before, and ErrNotHeld after Unlock or another Abandon.
// Afterwards Unlock returns ErrNotHeld.
func (h *Hold) Abandon() error {
	return wrap("abandon", h.name, h.abandon(context.Background()))
}

func (h *Hold) abandon(ctx context.Context) error {
	deadline, err := h.conclude()
	if err != nil {
		return err
	}
	defer h.client.calls.Done()
	h.leave()
	atReturn := h.endContexts(ctx)
	defer atReturn()
	h.client.observers.ended(h, h.howEnded(CauseAbandoned, deadline))
	h.cleanUpAfter(deadline.Sub(clock.Now()) + drift(h.ttl))
	return nil
}

// keptFor returns how long from now the lock stays taken by AtLeast, even if the hold is unlocked.
func (h *Hold) keptFor() time.Duration {
	if h.keptUntil.IsZero() {
		return 0
	}
	return h.keptUntil.Sub(clock.Now())
}

// leaveKept reports whether AtLeast keeps the lock taken, and has Close leave it then.
func (h *Hold) leaveKept() bool {
	kept := h.keptFor() > 0
	if kept {
		h.leave()
	}
	return kept
}

// covered reports whether the hold lasts for as long as AtLeast keeps it, without another request.
func (h *Hold) covered() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.deadline.Before(h.keptUntil)
}

// leave keeps the end of the Driver from ending the lease.
func (h *Hold) leave() {
	if l, ok := h.lease.(driver.Leaver); ok {
		l.Leave()
	}
}

// conclude makes an Unlock or an Abandon the hold's end. It returns the deadline, or why there was
// nothing to end. Each success needs one c.calls.Done.
func (h *Hold) conclude() (time.Time, error) {
	c := h.client
	closed := c.begin() != nil
	if closed {
		h.lose(CauseClosed)
	}
	_ = h.expireIfDue()
	h.mu.Lock()
	was, loss, deadline := h.state, h.loss, h.deadline
	h.state = unlocked
	if was == held {
		c.unschedule(h)
	}
	h.mu.Unlock()
	if was == held {
		return deadline, nil
	}
	if !closed {
		if was == lost {
			c.spawn(h.cleanUp) // it may last at the backend, if only the reply to a renewal was lost
		}
		c.calls.Done()
	}
	if was == lost {
		return time.Time{}, loss
	}
	return time.Time{}, ErrNotHeld
}
