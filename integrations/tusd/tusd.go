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
//	composer.UseLocker(lockertusd.New(client))
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

// locks makes the locks of uploads.
type locks struct {
	client *locker.Client
	opts   []locker.MutexOption
}

// New returns a Locker for a composer. An upload's lock is called tusd/ and the upload's ID. If the
// context of a Lock ends first, the Lock returns handler.ErrLockTimeout. The holder is asked to let
// go when somebody waits for its lock, or when the lock is lost. Unlock returns an error that
// matches [locker.ErrLost] if the lock was lost.
func New(client *locker.Client, opts ...locker.MutexOption) handler.Locker {
	return &locks{client, opts}
}

func (l *locks) NewLock(id string) (handler.Lock, error) {
	return &lock{mutex: l.client.Mutex("tusd/"+id, l.opts...)}, nil
}

// lock is locked once, and by one goroutine.
type lock struct {
	mutex    *locker.Mutex
	hold     *locker.Hold
	unlocked chan struct{}
}

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

func (l *lock) Unlock() error {
	if l.hold == nil {
		return errors.Join(errors.New("lockertusd: Unlock without Lock"), locker.ErrNotHeld)
	}
	close(l.unlocked)
	hold := l.hold
	l.hold = nil
	return hold.Unlock(context.Background())
}
