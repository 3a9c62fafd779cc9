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

// storage replaces the locks of another storage by those of a Client.
type storage struct {
	certmagic.Storage

	locks *keyed.Locks
}

var _ interface {
	certmagic.Storage
	certmagic.TryLocker
	certmagic.LockLeaseRenewer
	fmt.Stringer
} = (*storage)(nil)

// New returns s with the locks of c. It makes no request. The caller closes the Client, after
// certmagic has ended.
//
// The result has Lock, TryLock (certmagic.TryLocker), Unlock and RenewLockLease
// (certmagic.LockLeaseRenewer), whether or not s has them, and never calls those of s. Its other
// methods, and String for logs, are those of s. The Client renews a lock until Unlock, and it
// expires within a TTL if the process crashes. Unlock releases the lock even if its context has
// ended. It returns ErrLost if the lock was lost; certmagic logs this.
func New(s certmagic.Storage, c *locker.Client) certmagic.Storage {
	return &storage{Storage: s, locks: keyed.New(c)}
}

func (s *storage) Lock(ctx context.Context, name string) error {
	return s.locks.Lock(ctx, name)
}

// TryLock returns false without an error if another holds the lock.
func (s *storage) TryLock(ctx context.Context, name string) (bool, error) {
	err := s.locks.TryLock(ctx, name)
	if errors.Is(err, locker.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// Unlock returns by the hold's deadline. After an error certmagic calls it again at its clean-up.
// Then there is nothing to release, and Unlock returns nil.
func (s *storage) Unlock(ctx context.Context, name string) error {
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
func (s *storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	err := s.locks.Extend(ctx, name)
	if errors.Is(err, locker.ErrLost) {
		err = s.locks.Relock(ctx, name)
	}
	return err
}

// String returns the String of the other storage, or its type.
func (s *storage) String() string {
	if other, ok := s.Storage.(fmt.Stringer); ok {
		return other.String()
	}
	return fmt.Sprintf("%T", s.Storage)
}
