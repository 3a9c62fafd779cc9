package multi

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-locker/locker"
)

// Hold is one hold of all locks of a [Mutex], from the grant of the last to its Unlock. It may be
// used by several goroutines.
//
// If one lock is lost, the Hold is lost: Err returns ErrLost, and its contexts end. The others stay
// held until Unlock, because the program may still be at work under them.
type Hold struct {
	parts []part // in the order in which they were taken
}

type part struct {
	name string
	hold *locker.Hold
}

// acquireAll takes the locks one after another. What it has taken when it fails is the Hold's.
func (h *Hold) acquireAll(ctx context.Context, locks []*locker.Mutex, one take) error {
	for _, m := range locks {
		if err := h.acquire(ctx, m, one); err != nil {
			return err
		}
	}
	return h.Err()
}

// acquire takes one more, unless one of the others is lost meanwhile.
func (h *Hold) acquire(ctx context.Context, m *locker.Mutex, one take) error {
	ctx, cancel := h.Context(ctx, 0)
	defer cancel()
	hold, err := one(m, ctx)
	if err == nil {
		h.parts = append(h.parts, part{m.Name(), hold})
	}
	return err
}

// Token returns the fencing token of the lock called name, also after its end, and 0 if name is
// none of the Mutex's. Each lock has tokens of its own. A resource checks the token of the name
// that guards it; if two names guard it, it checks both tokens.
func (h *Hold) Token(name string) uint64 {
	for _, p := range h.parts {
		if p.name == name {
			return p.hold.Token()
		}
	}
	return 0
}

// Deadline returns when the first of the locks expires unless they are extended, as
// [locker.Hold.Deadline] does.
func (h *Hold) Deadline() time.Time {
	var earliest time.Time
	for _, p := range h.parts {
		if d := p.hold.Deadline(); earliest.IsZero() || d.Before(earliest) {
			earliest = d
		}
	}
	return earliest
}

// Err returns nil while all locks are held, ErrLost once one of them is lost, and ErrNotHeld after
// Unlock, as [locker.Hold.Err] does: by the clock, without a request.
func (h *Hold) Err() error {
	for _, p := range h.parts {
		if err := p.hold.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Context returns a context that ends with ctx, with the first of the locks that ends, or when
// reserve is all that is left until the earliest deadline, as [locker.Hold.Context] does. Call
// cancel when it is no longer needed.
func (h *Hold) Context(ctx context.Context, reserve time.Duration) (context.Context, context.CancelFunc) {
	cancels := make([]context.CancelFunc, len(h.parts))
	for i, p := range h.parts {
		ctx, cancels[i] = p.hold.Context(ctx, reserve) //nolint:fatcontext // one for each lock, of which there are few
	}
	if len(cancels) == 0 {
		return context.WithCancel(ctx)
	}
	return ctx, func() {
		for _, cancel := range slices.Backward(cancels) {
			cancel()
		}
	}
}

// under calls f under each of the parts, and releases them in reverse.
func under(ctx context.Context, parts []part, f func(context.Context) error) error {
	if len(parts) == 0 {
		return f(ctx)
	}
	return parts[0].hold.Do(ctx, func(ctx context.Context) error { return under(ctx, parts[1:], f) })
}

// Unlock releases all locks, in reverse order, even if one of the releases fails. It returns the
// errors of those that failed, joined: ErrLost if one had been lost, and ErrNotHeld for a second
// call. When ctx ends it returns within milliseconds, and what is left is done in the background.
func (h *Hold) Unlock(ctx context.Context) error {
	var errs []error
	for _, p := range slices.Backward(h.parts) {
		errs = append(errs, p.hold.Unlock(ctx))
	}
	return errors.Join(errs...)
}
