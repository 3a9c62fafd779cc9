package conformance

import (
	"context"

	"github.com/go-locker/locker"
)

// RWLocker is a [locker.Locker] that takes shares, too, as a read-write lock does. Lock waits for a
// hold that excludes all others. RLock waits for a share, which excludes only Lock. Unlock, Extend
// and FencingToken concern the current hold, of either kind. *locker.RWMutex is one.
//
// Shares that are held at the same time have one token. It is above that of the last hold of Lock
// (or the same, if that hold was downgraded to a share), and below that of the next. Lock and
// TryLock return an error at once if the RWLocker's own hold is a share.
//
// If the Harness promises locker.Ordered, waiters are served first come, first served: an RLock
// waits for the Locks that came before it, and several RLocks in a row hold their shares at the
// same time. Without locker.Ordered, either kind may go first.
//
// An RWLocker may also have Downgrade(ctx context.Context) error, which turns its hold into a share
// in one step: the token and the time that is left stay. Downgrade returns an error that matches
// locker.ErrLost if the hold was lost, and locker.ErrNotHeld without a hold. After any other error
// Downgrade can be called again, also if the hold is a share by then.
type RWLocker interface {
	locker.Locker
	// RLock waits for a share as Lock waits for the lock.
	RLock(ctx context.Context) error
	// TryRLock makes one attempt. It returns an error that matches locker.ErrHeld if a hold of Lock
	// is there. If the Harness promises locker.Ordered, it also does so while somebody waits in
	// Lock.
	TryRLock(ctx context.Context) error
}

// downgrader is an RWLocker that has Downgrade.
type downgrader interface {
	Downgrade(ctx context.Context) error
}
