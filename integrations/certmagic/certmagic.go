// Package certmagic makes certmagic obtain each certificate once, under the locks of a
// [locker.Client], whatever certmagic's storage is.
//
// certmagic's Locker cannot say that a lock was lost while it was held. Lock returns no context,
// and the error of Unlock is only logged. The only call that can tell of a loss is RenewLockLease,
// which certmagic makes before each attempt in the background (ManageAsync, ObtainCertAsync,
// RenewCertAsync). If the lock was lost, RenewLockLease takes it anew: it waits until no other
// process issues. Then certmagic finds the other's certificate in the storage, and issues none,
// unless a renewal is forced. If RenewLockLease fails, the attempt ends before it issues. The next
// attempt, a minute or more later, calls it again.
//
//	storage := locks.New(&certmagic.FileStorage{Path: "/shared/certificates"}, client)
//	magic := certmagic.New(cache, certmagic.Config{Storage: storage})
//
// A loss during a request to the certificate authority stops nothing. (A pause of the process for
// longer than the TTL is such a loss.) The certificate is stored, and so is that of the next
// holder: both are valid, and one is wasted. The three files of a certificate are stored one after
// another. So if two processes store at the same time, the key may not fit the certificate.
// Attempts in the foreground (ManageSync, ObtainCertSync) and the periodic renewal do not call
// RenewLockLease: they make one attempt, soon after Lock.
//
// All programs that share a storage must use this package. Before the first one uses it, stop all
// programs that take the storage's own locks: the two kinds of locks do not exclude each other. The
// names of the locks are those of certificates, and may be the same in two storages. So give the
// locks of each storage a prefix of their own ([locker.WithPrefix]). Do not switch off the renewal
// of locks ([locker.WithoutRenewal]).
package certmagic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/keyed"
)

// Storage wraps another storage, and replaces its locks by those of a Client. Make one with [New].
// It has Lock, TryLock, Unlock and RenewLockLease, whether or not the other has them, and never
// calls the other's. All other methods of a certmagic.Storage, and String for logs, are those of
// the other storage. If the other storage can do more, use it by the field Storage; certmagic
// itself needs no more.
type Storage struct {
	certmagic.Storage

	locks *keyed.Locks
}

var _ interface {
	certmagic.Storage
	certmagic.TryLocker
	certmagic.LockLeaseRenewer
	fmt.Stringer
} = (*Storage)(nil)

// New returns s with the locks of c. It makes no request. The caller closes the Client, after
// certmagic has ended.
func New(s certmagic.Storage, c *locker.Client) *Storage {
	return &Storage{Storage: s, locks: keyed.New(c)}
}

// Lock waits until the lock called name is held, or ctx is done. The Client renews it until Unlock,
// and it expires within a TTL if the process crashes. See [keyed.Locks.Lock].
func (s *Storage) Lock(ctx context.Context, name string) error {
	return s.locks.Lock(ctx, name)
}

// TryLock makes one attempt, and returns false without an error if another holds the lock. See
// [keyed.Locks.TryLock].
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	err := s.locks.TryLock(ctx, name)
	if errors.Is(err, locker.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock called name, also if ctx has ended, and returns by the hold's deadline.
// It returns ErrLost if the hold had ended before; certmagic logs this. If Unlock has returned an
// error, certmagic calls it again at its clean-up. Then there is nothing to release, and Unlock
// returns nil. See [keyed.Locks.Unlock].
func (s *Storage) Unlock(ctx context.Context, name string) error {
	err := s.locks.Unlock(context.WithoutCancel(ctx), name)
	if errors.Is(err, locker.ErrNotHeld) {
		return nil
	}
	return err
}

// RenewLockLease returns nil when the lock called name is held for a whole TTL from now. If it was
// lost, RenewLockLease waits until it is held again, as Lock does; others may have issued
// meanwhile. After an error certmagic must not issue: the backend has not answered, or ctx has
// ended while another holds the lock. It returns ErrNotHeld before Lock and after Unlock.
//
// It ignores the duration. (certmagic passes one that covers its pause before the next attempt.)
// The Client renews the lock as long as the process lives, and a lock for hours would outlive a
// crash.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	err := s.locks.Extend(ctx, name)
	if errors.Is(err, locker.ErrLost) {
		err = s.locks.Relock(ctx, name)
	}
	return err
}

// String returns the String of the other storage, or its type.
func (s *Storage) String() string {
	if other, ok := s.Storage.(fmt.Stringer); ok {
		return other.String()
	}
	return fmt.Sprintf("%T", s.Storage)
}
