// Package power finds the methods that only some Lockers have.
package power

import (
	"context"
	"time"

	"github.com/go-locker/locker"
)

// TryLocker makes one attempt.
type TryLocker interface {
	TryLock(ctx context.Context) error
}

// Loser tells its holder of the loss.
type Loser interface{ Lost() <-chan struct{} }

// Deadliner knows when its hold is over.
type Deadliner interface{ Deadline() time.Time }

// Wanter tells its holder that somebody waits.
type Wanter interface{ Wanted() <-chan struct{} }

// Namer knows its name.
type Namer interface{ Name() string }

// Guarantor knows what its backend promises.
type Guarantor interface{ Guarantees() locker.Guarantees }

// Sharer is conformance.RWLocker.
type Sharer = interface {
	locker.Locker
	RLock(ctx context.Context) error
	TryRLock(ctx context.Context) error
}

// Of returns the methods T of a Locker, or of its current hold if it is a *locker.Mutex.
func Of[T any](l any) (methods T, ok bool) {
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

// Sharing is an RWLocker whose Lock takes a share. Its methods that only some Lockers have are
// those of the RWLocker.
type Sharing struct{ Sharer }

// Lock is RLock.
func (s Sharing) Lock(ctx context.Context) error { return s.RLock(ctx) }

// TryLock is TryRLock.
func (s Sharing) TryLock(ctx context.Context) error { return s.TryRLock(ctx) }

// Lost is nil if the RWLocker has none.
func (s Sharing) Lost() <-chan struct{} {
	if l, ok := Of[Loser](s.Sharer); ok {
		return l.Lost()
	}
	return nil
}

// Deadline is the zero Time if the RWLocker has none.
func (s Sharing) Deadline() time.Time {
	if l, ok := Of[Deadliner](s.Sharer); ok {
		return l.Deadline()
	}
	return time.Time{}
}
