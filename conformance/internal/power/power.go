package conformance

import (
	"context"
	"time"

	"github.com/go-locker/locker"
)

// The powers that only some Lockers have.
type (
	tryLocker interface {
		TryLock(ctx context.Context) error
	}
	loser     interface{ Lost() <-chan struct{} }
	deadliner interface{ Deadline() time.Time }
	wanter    interface{ Wanted() <-chan struct{} } // tells its holder that somebody waits
	namer     interface{ Name() string }
	guarantor interface{ Guarantees() locker.Guarantees }
)

// power returns the methods T of a Locker that not every one has. A program's has those that it
// claims.
func power[T any](l locker.Locker, capability string) (methods T, ok bool) {
	if r, is := l.(*remote); is && !r.p.Can(capability) {
		return methods, false
	}
	return methodsOf[T](l)
}

// methodsOf returns the methods T of a Locker, or of its current hold if it is a *locker.Mutex.
func methodsOf[T any](l any) (methods T, ok bool) {
	if methods, ok = l.(T); ok {
		return methods, true
	}
	if h, is := l.(interface{ Hold() *locker.Hold }); is {
		methods, ok = any(current{h.Hold}).(T)
	}
	return methods, ok
}

// current has the methods of a Mutex's current hold. Without one they return nothing.
type current struct{ hold func() *locker.Hold }

func (c current) Lost() <-chan struct{}   { return orZero(c, (*locker.Hold).Lost) }
func (c current) Wanted() <-chan struct{} { return orZero(c, (*locker.Hold).Wanted) }
func (c current) Deadline() time.Time     { return orZero(c, (*locker.Hold).Deadline) }

func orZero[T any](c current, method func(*locker.Hold) T) (zero T) {
	if h := c.hold(); h != nil {
		return method(h)
	}
	return zero
}
