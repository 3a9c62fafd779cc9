package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"

	"github.com/go-locker/locker"
)

// redsyncLocker also has a Deadline, for redsync has Until.
type redsyncLocker struct{ trier }

// newRedsync makes a Mutex for each Lock: it has no guard against two goroutines, and with WithFailFast its own
// stragglers are another.
func newRedsync(rs *redsync.Redsync, name string, ttl time.Duration) locker.Locker {
	mutex := func() *redsync.Mutex {
		return rs.NewMutex(name,
			redsync.WithExpiry(ttl),
			redsync.WithTries(math.MaxInt),  // Lock waits until ctx ends
			redsync.WithTimeoutFactor(0.25), // the default leaves a busy server 20 ms of a TTL of 400 ms
			redsync.WithFailFast(true),      // a node that does not answer costs no time
		)
	}
	take := func(ctx context.Context, m *redsync.Mutex, lock func(context.Context) error) (*hold, error) {
		if err := lock(ctx); err != nil {
			return nil, redsyncError(err, locker.ErrHeld)
		}
		return redsyncHold(m), nil
	}
	return redsyncLocker{trier{&adapter{
		lock: func(ctx context.Context) (*hold, error) {
			m := mutex()
			return take(ctx, m, m.LockContext)
		},
		try: func(ctx context.Context) (*hold, error) {
			m := mutex()
			return take(ctx, m, m.TryLockContext)
		},
	}}}
}

func redsyncHold(m *redsync.Mutex) *hold {
	var one sync.Mutex // Extend at a time: it writes what Until reads
	var until atomic.Int64
	until.Store(m.Until().UnixNano())
	return &hold{
		extend: func(ctx context.Context) error {
			one.Lock()
			defer one.Unlock()
			ok, err := m.ExtendContext(ctx)
			if !ok {
				return redsyncError(err, locker.ErrLost)
			}
			until.Store(m.Until().UnixNano())
			return nil
		},
		release: func(ctx context.Context) error {
			if ok, err := m.UnlockContext(ctx); !ok {
				return redsyncError(err, locker.ErrLost)
			}
			return nil
		},
		until: func() time.Time { return time.Unix(0, until.Load()) },
		lost:  func() bool { return time.Now().UnixNano() >= until.Load() },
	}
}

// redsyncError adds what it means that the lock is another's, or nobody's.
func redsyncError(err, notOurs error) error {
	var taken *redsync.ErrTaken
	var node *redsync.ErrNodeTaken
	var unreachable *redsync.RedisError
	switch {
	case errors.Is(err, redsync.ErrLockAlreadyExpired), errors.Is(err, redsync.ErrExtendFailed), errors.As(err, &taken):
		return fmt.Errorf("%w: %w", notOurs, err)
	case errors.As(err, &node) && !errors.As(err, &unreachable):
		return fmt.Errorf("%w: %w", notOurs, err)
	}
	return err
}

// Deadline is when the current hold expires.
func (l redsyncLocker) Deadline() time.Time {
	if h := l.current(); h != nil {
		return h.until()
	}
	return time.Time{}
}
