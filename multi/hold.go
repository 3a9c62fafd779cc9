package multi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/carry"
)

// Hold is one hold of all locks of a [Mutex], from the grant of the last to its Unlock. It may be
// used by several goroutines.
//
// If one lock is lost, the Hold is lost: Err returns ErrLost, and its contexts end. The others stay
// held until Unlock, because the program may still be at work under them.
type Hold struct {
	holds []*locker.Hold // sorted by name, the order in which they were taken
}

// acquireAll takes the locks one after another. What it has taken when it fails is the Hold's. If
// one of these is lost while the next is awaited, the wait ends.
func (h *Hold) acquireAll(ctx context.Context, locks []*locker.Mutex, one take) error {
	waiting, end := context.WithCancelCause(ctx)
	var stops []func()
	defer func() {
		for _, stop := range stops {
			stop()
		}
		end(nil)
	}()
	for _, m := range locks {
		hold, err := one(m, waiting)
		if err != nil {
			return err
		}
		h.holds = append(h.holds, hold)
		own, cancel := hold.Context(context.Background(), 0)
		forget := context.AfterFunc(own, func() { end(context.Cause(own)) })
		stops = append(stops, func() { forget(); cancel() })
	}
	return h.Err()
}

// Token returns the fencing token of the lock called name, also after its end, and 0 if name is
// none of the Mutex's. Each lock has tokens of its own. A resource checks the token of the name
// that guards it; if two names guard it, it checks both tokens.
func (h *Hold) Token(name string) uint64 {
	i, found := slices.BinarySearchFunc(h.holds, name, func(hold *locker.Hold, name string) int {
		return strings.Compare(hold.Name(), name)
	})
	if !found {
		return 0
	}
	return h.holds[i].Token()
}

// Deadline returns when the first of the locks expires unless they are extended, as
// [locker.Hold.Deadline] does.
func (h *Hold) Deadline() time.Time {
	var earliest time.Time
	for _, hold := range h.holds {
		if d := hold.Deadline(); earliest.IsZero() || d.Before(earliest) {
			earliest = d
		}
	}
	return earliest
}

// Err returns nil while all locks are held, ErrLost once one of them is lost, and ErrNotHeld after
// Unlock, as [locker.Hold.Err] does: by the clock, without a request.
func (h *Hold) Err() error {
	for _, hold := range h.holds {
		if err := hold.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Context returns a context that ends with ctx, with the first of the locks that ends, or when
// reserve is all that is left until the earliest deadline, as [locker.Hold.Context] does. Call
// cancel when it is no longer needed.
func (h *Hold) Context(ctx context.Context, reserve time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := h.holds[0].Context(ctx, reserve)
	for _, hold := range h.holds[1:] {
		ctx.(holdContext).Add(hold)
	}
	return ctx, cancel
}

// holdContext is what [locker.Hold.Context] returns. Carries reports whether it is a context of a
// hold or derives from one, and Add makes it one. End ends the contexts of a hold.
type holdContext interface {
	Carries(h *locker.Hold) bool
	Add(h *locker.Hold)
	End(h *locker.Hold)
}

// Unlock releases all locks, even if one of the releases fails: a few in reverse order, many at
// once. It returns the errors of those that failed, joined: ErrLost if one had been lost, and
// ErrNotHeld for a second call. When ctx ends it returns within milliseconds, and what is left is
// done in the background. If ctx is a context of the Hold, Unlock ends it right before it returns.
func (h *Hold) Unlock(ctx context.Context) error {
	c, ok := ctx.Value(carry.Innermost{}).(holdContext)
	if !ok || !slices.ContainsFunc(h.holds, c.Carries) {
		return errors.Join(h.unlock(ctx)...)
	}
	ended := make(chan *locker.Hold, len(h.holds)) // by this call, not by another
	later := func(hold *locker.Hold) bool {
		ours := slices.Contains(h.holds, hold)
		if ours {
			ended <- hold
		}
		return ours
	}
	own, cancel := context.WithCancel(context.WithValue(ctx, carry.Later{}, later)) // looks at no hold's clock
	defer cancel()
	errs := h.unlock(own)
	for range len(ended) {
		c.End(<-ended)
	}
	return errors.Join(errs...)
}

// atOnce is how many releases are in flight at the same time if there are more than few. Fewer are
// made one by one.
const atOnce, few = 64, 10

// unlock returns an error, or nil, for each lock.
func (h *Hold) unlock(ctx context.Context) []error {
	workers := 1
	if len(h.holds) > few {
		workers = min(atOnce, len(h.holds))
	}
	errs := make([]error, len(h.holds))
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(errs)); i = next.Add(1) - 1 {
				errs[i] = h.holds[len(errs)-1-int(i)].Unlock(ctx)
			}
		})
	}
	all.Wait()
	return errs
}
