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
	namer     interface{ Name() string }
	guarantor interface{ Guarantees() locker.Guarantees }
)

// power returns the methods T of a Locker that not every one has. A program's has those that it
// claims.
func power[T any](l locker.Locker, capability string) (methods T, ok bool) {
	if r, is := l.(*remote); is && !r.p.Can(capability) {
		return methods, false
	}
	methods, ok = l.(T)
	return methods, ok
}
