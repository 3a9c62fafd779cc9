package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/go-locker/locker"
)

// redsyncLocker also has a Deadline, for redsync has Until.
type redsyncLocker struct{ trier }

// newRedsync makes a Mutex for each Lock: it has no guard against two goroutines, and with WithFailFast its own
// stragglers are another.
func newRedsync(rs *redsync.Redsync, name string, ttl time.Duration) locker.Locker {
	return &redsyncLocker{trier{adapter{take: func(ctx context.Context, try bool) (*hold, error) {
		m := rs.NewMutex(name,
			redsync.WithExpiry(ttl),
			redsync.WithTries(math.MaxInt),  // Lock waits until ctx ends
			redsync.WithTimeoutFactor(0.25), // the default leaves a busy server 20 ms of a TTL of 400 ms
			redsync.WithFailFast(true),      // a node that does not answer costs no time
		)
		lock := m.LockContext
		if try {
			lock = m.TryLockContext
		}
		if err := lock(ctx); err != nil {
			return nil, redsyncError(err, locker.ErrHeld)
		}
		return redsyncHold(m), nil
	}}}}
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
func (l *redsyncLocker) Deadline() time.Time {
	if h := l.current(); h != nil {
		return h.until()
	}
	return time.Time{}
}

// forever is how long a Lock waits whose ctx has no deadline, where Obtain would put the TTL.
const forever = 365 * 24 * time.Hour

func newRedislock(c *redislock.Client, name string, ttl time.Duration) locker.Locker {
	return &trier{adapter{take: func(ctx context.Context, try bool) (*hold, error) {
		retry := redislock.NoRetry()
		if !try {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, forever)
			defer cancel()
			retry = redislock.LinearBackoff(20 * time.Millisecond)
		}
		l, err := c.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: retry})
		if errors.Is(err, redislock.ErrNotObtained) {
			return nil, fmt.Errorf("%w: %w", locker.ErrHeld, err)
		}
		if err != nil {
			return nil, err
		}
		return redislockHold(l, ttl), nil
	}}}
}

func redislockHold(l *redislock.Lock, ttl time.Duration) *hold {
	lost := func(err error) error {
		if errors.Is(err, redislock.ErrLockNotHeld) || errors.Is(err, redislock.ErrNotObtained) {
			return fmt.Errorf("%w: %w", locker.ErrLost, err)
		}
		return err
	}
	return &hold{
		extend:  func(ctx context.Context) error { return lost(l.Refresh(ctx, ttl, nil)) },
		release: func(ctx context.Context) error { return lost(l.Release(ctx)) },
	}
}

// dialRueidislock has one server, and the settings that the package's own documentation gives for one. Without
// renewal the next one is due long after the end.
func dialRueidislock(addr string, ttl time.Duration, renew bool) (rueidislock.Locker, error) {
	o := rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyValidity:    ttl,
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   ttl, // an attempt that overruns it leaves its waiter asleep: see the findings
	}
	if !renew {
		o.ExtendInterval = time.Hour
	}
	return rueidislock.NewLocker(o)
}

func newRueidislock(l rueidislock.Locker, name string) locker.Locker {
	return &trier{adapter{take: func(ctx context.Context, try bool) (*hold, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// The hold ends with the ctx that it was taken with, which is why that is not the caller's.
		life, end := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, end)
		take := l.WithContext
		if try {
			take = l.TryWithContext
		}
		held, release, err := take(life, name)
		if err != nil {
			stop()
			end()
			if errors.Is(err, rueidislock.ErrNotLocked) {
				err = fmt.Errorf("%w: %w", locker.ErrHeld, err)
			}
			return nil, err
		}
		if !stop() {
			release()
			return nil, ctx.Err()
		}
		return rueidislockHold(held, func() { release(); end() }), nil
	}}}
}

// rueidislockHold is one that renews itself: nothing is left for Extend but to say whether it lasts. Nor is there
// an answer to a release.
func rueidislockHold(held context.Context, release func()) *hold {
	return &hold{
		extend:  func(context.Context) error { return nil },
		release: func(context.Context) error { release(); return nil },
		lost:    func() bool { return held.Err() != nil },
	}
}
