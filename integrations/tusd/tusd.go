// Package tusd is a Locker for github.com/tus/tusd/v2, so that several tusd servers can share one
// store of uploads: a lock of any backend for each upload.
//
// Tusd's interface can tell a holder that somebody waits: the holder is asked to let go, and ends
// its request. So a client that resumes on another server need not wait until the first server
// notices that its connection is dead. The interface cannot tell a holder that its lock was lost.
// So, after a loss, this package also asks the holder to let go. And it has no place for a fencing
// token: tusd's stores append what they are given. A server that was paused past its TTL ends its
// request after it wakes. What it reads from the connection before the request has ended is still
// appended. So choose a TTL that is longer than your pauses.
//
//	composer := handler.NewStoreComposer()
//	filestore.New("/shared/uploads").UseIn(composer)
//	lockertusd.New(client).UseIn(composer)
//
// If the backend does not tell at once that somebody waits, a holder looks when it has taken the
// lock, and every tenth of the TTL: see [locker.Hold.Wanted]. Tusd waits for a lock for only 20 s
// by default (AcquireLockTimeout). So choose a TTL below a minute: then the holder looks at least
// every 6 s, and has the rest of the 20 s to end its request.
package tusd

import (
	"context"
	"errors"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/go-locker/locker"
)

// Locker makes the locks of uploads.
type Locker struct {
	client *locker.Client
	opts   []locker.MutexOption
}

var _ handler.Locker = (*Locker)(nil)

// New returns a Locker. An upload's lock is called tusd/ and the upload's ID.
func New(client *locker.Client, opts ...locker.MutexOption) *Locker {
	return &Locker{client, opts}
}

// UseIn makes a composer use the Locker.
func (l *Locker) UseIn(composer *handler.StoreComposer) { composer.UseLocker(l) }

// NewLock implements handler.Locker.
func (l *Locker) NewLock(id string) (handler.Lock, error) {
	return &lock{mutex: l.client.Mutex("tusd/"+id, l.opts...)}, nil
}

// lock is locked once, and by one goroutine.
type lock struct {
	mutex    *locker.Mutex
	hold     *locker.Hold
	unlocked chan struct{}
}

// Lock waits until the lock is held. If ctx ends before that, it returns handler.ErrLockTimeout. It
// calls requestRelease when somebody waits for the lock, or when it is lost.
func (l *lock) Lock(ctx context.Context, requestRelease func()) error {
	hold, err := l.mutex.Acquire(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return handler.ErrLockTimeout
	case err != nil:
		return err
	}
	l.hold, l.unlocked = hold, make(chan struct{})
	wanted, lost, unlocked := hold.Wanted(), hold.Lost(), l.unlocked
	go func() {
		select {
		case <-wanted:
			requestRelease()
		case <-lost:
			requestRelease()
		case <-unlocked:
		}
	}()
	return nil
}

// Unlock releases the lock. It returns an error that matches [locker.ErrLost] if the lock was lost
// before.
func (l *lock) Unlock() error {
	if l.hold == nil {
		return errors.Join(errors.New("lockertusd: Unlock without Lock"), locker.ErrNotHeld)
	}
	close(l.unlocked)
	hold := l.hold
	l.hold = nil
	return hold.Unlock(context.Background())
}
