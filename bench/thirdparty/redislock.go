package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"

	"github.com/go-locker/locker"
)

// forever is how long a Lock waits whose ctx has no deadline, where Obtain would put the TTL.
const forever = 365 * 24 * time.Hour

func newRedislock(c *redislock.Client, name string, ttl time.Duration) locker.Locker {
	obtain := func(ctx context.Context, retry redislock.RetryStrategy) (*hold, error) {
		l, err := c.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: retry})
		if errors.Is(err, redislock.ErrNotObtained) {
			return nil, fmt.Errorf("%w: %w", locker.ErrHeld, err)
		}
		if err != nil {
			return nil, err
		}
		return redislockHold(l, ttl), nil
	}
	return trier{&adapter{
		lock: func(ctx context.Context) (*hold, error) {
			ctx, cancel := context.WithTimeout(ctx, forever)
			defer cancel()
			return obtain(ctx, redislock.LinearBackoff(20*time.Millisecond))
		},
		try: func(ctx context.Context) (*hold, error) { return obtain(ctx, redislock.NoRetry()) },
	}}
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
