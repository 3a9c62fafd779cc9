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
	w := newWork(ctx, len(locks))
	defer w.done(nil)
	for _, m := range locks {
		hold, err := one(m, w.Context)
		if err != nil {
			return err
		}
		h.holds = append(h.holds, hold)
		w.add(hold, 0)
	}
	return h.Err()
}

// work is a context that ends with the first of several holds. It costs no goroutine.
type work struct {
	context.Context // without the holds' clocks

	end   context.CancelCauseFunc
	holds []*locker.Hold
	parts []context.Context // of each hold alone
	stops []func()
}

func newWork(ctx context.Context, n int) *work {
	w := &work{parts: make([]context.Context, 0, n), stops: make([]func(), 0, n)}
	w.Context, w.end = context.WithCancelCause(ctx)
	return w
}

// add has the context end with h, too. They are added in the order of their names.
func (w *work) add(h *locker.Hold, reserve time.Duration) {
	own, cancel := h.Context(context.Background(), reserve)
	forget := context.AfterFunc(own, func() { w.end(context.Cause(own)) })
	w.holds, w.parts = append(w.holds, h), append(w.parts, own)
	w.stops = append(w.stops, func() { forget(); cancel() })
}

// done ends the context, and tells the holds that no work goes on under it.
func (w *work) done(cause error) {
	w.end(cause)
	for _, stop := range w.stops {
		stop()
	}
}

// look ends the context if a hold is over by the clock, though no timer has fired yet.
func (w *work) look() {
	for _, own := range w.parts {
		if own.Err() != nil {
			w.end(context.Cause(own))
			return
		}
	}
}

// Err implements [context.Context].
func (w *work) Err() error {
	w.look()
	return w.Context.Err()
}

// Done implements [context.Context].
func (w *work) Done() <-chan struct{} {
	w.look()
	return w.Context.Done()
}

// Value implements [context.Context]. The key by which Join finds a hold has the name of the lock.
func (w *work) Value(key any) any {
	if k, ok := key.(interface{ Name() string }); ok {
		if i, found := search(w.holds, k.Name()); found {
			if v := w.parts[i].Value(key); v != nil {
				return v
			}
		}
	}
	return w.Context.Value(key)
}

func search(holds []*locker.Hold, name string) (int, bool) {
	return slices.BinarySearchFunc(holds, name, func(h *locker.Hold, name string) int {
		return strings.Compare(h.Name(), name)
	})
}

// Token returns the fencing token of the lock called name, also after its end, and 0 if name is
// none of the Mutex's. Each lock has tokens of its own. A resource checks the token of the name
// that guards it; if two names guard it, it checks both tokens.
func (h *Hold) Token(name string) uint64 {
	if i, found := search(h.holds, name); found {
		return h.holds[i].Token()
	}
	return 0
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
	w := newWork(ctx, len(h.holds))
	for _, hold := range h.holds {
		w.add(hold, reserve)
	}
	return w, func() { w.done(nil) }
}

// Unlock releases all locks, even if one of the releases fails: a few in reverse order, many at
// once. It returns the errors of those that failed, joined: ErrLost if one had been lost, and
// ErrNotHeld for a second call. When ctx ends it returns within milliseconds, and what is left is
// done in the background.
func (h *Hold) Unlock(ctx context.Context) error { return errors.Join(h.unlock(ctx)...) }

// atOnce is how many releases are under way at the same time, and few how many are made one by one.
const atOnce, few = 64, 10

func (h *Hold) unlock(ctx context.Context) []error {
	errs := make([]error, len(h.holds))
	if len(h.holds) <= few {
		for i, hold := range slices.Backward(h.holds) {
			errs[len(errs)-1-i] = hold.Unlock(ctx)
		}
		return errs
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(atOnce, len(h.holds)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(errs)); i = next.Add(1) - 1 {
				errs[i] = h.holds[len(errs)-1-int(i)].Unlock(ctx)
			}
		})
	}
	all.Wait()
	return errs
}
