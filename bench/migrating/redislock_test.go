package migrating

import (
	"context"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/redis"
)

func redislockWay(locks *redislock.Client) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		lock, err := locks.Obtain(ctx, "orders/42", 10*time.Second, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
		})
		if err != nil {
			return err
		}
		defer lock.Release(ctx) //nolint:errcheck // as it is often written
		return work(ctx)
	}
}

func TestRedislock_changeOver(t *testing.T) {
	rdb := startRedis(t)
	locks := redislock.New(rdb)

	client, err := redis.New(rdb, locker.WithTTL(10*time.Second))
	changeOver(t, redislockWay(locks), made(t)(client, err))
}

func TestRedislock_doesNotWaitUnlessTold(t *testing.T) {
	ctx, locks := t.Context(), redislock.New(startRedis(t))
	_, err := locks.Obtain(ctx, "orders/42", 10*time.Second, nil)
	require.NoError(t, err)
	_, err = locks.Obtain(ctx, "orders/42", 10*time.Second, nil)
	require.ErrorIs(t, err, redislock.ErrNotObtained)
}

func TestRedislock_anInterruptedWaitSaysThatItWasHeld(t *testing.T) {
	locks := redislock.New(startRedis(t))
	_, err := locks.Obtain(t.Context(), "orders/42", 10*time.Second, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err = locks.Obtain(ctx, "orders/42", 10*time.Second, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Minute)})
	require.ErrorIs(t, err, redislock.ErrNotObtained)
	require.ErrorIs(t, err, context.Canceled)
}

func TestRedislock_afterTheTTL(t *testing.T) {
	ctx, rdb := t.Context(), startRedis(t)
	lock, err := redislock.New(rdb).Obtain(ctx, "orders/42", 300*time.Millisecond, nil)
	require.NoError(t, err)
	outlast(t, rdb, "orders/42")
	left, err := lock.TTL(ctx)
	require.NoError(t, err)
	assert.Zero(t, left)
	require.ErrorIs(t, lock.Refresh(ctx, 10*time.Second, nil), redislock.ErrNotObtained)
	require.ErrorIs(t, lock.Release(ctx), redislock.ErrLockNotHeld)
}

func TestRedislock_theSameTokenObtainsAgain(t *testing.T) {
	ctx, locks := t.Context(), redislock.New(startRedis(t))
	options := &redislock.Options{Token: "worker-7", Metadata: "web-3"}
	for range 2 {
		lock, err := locks.Obtain(ctx, "orders/42", 10*time.Second, options)
		require.NoError(t, err)
		assert.Equal(t, "worker-7", lock.Token())
		assert.Equal(t, "web-3", lock.Metadata())
	}
}

// A Hold is what a Lock of redislock was.
func TestRedislock_aHoldInItsPlace(t *testing.T) {
	ctx, rdb := t.Context(), startRedis(t)
	client := made(t)(redis.New(rdb, locker.WithMetadata("web-3")))
	m := client.Mutex("orders/42", locker.WithTTL(10*time.Second))
	hold, err := m.Acquire(ctx)
	require.NoError(t, err)
	_, err = m.TryAcquire(ctx)
	require.ErrorIs(t, err, locker.ErrHeld)
	assert.Positive(t, hold.Token())
	require.NoError(t, hold.Extend(ctx))
	assert.True(t, hold.Deadline().After(time.Now()))
	state, err := client.Inspect(ctx, "orders/42")
	require.NoError(t, err)
	assert.Equal(t, "web-3", state.Holder.Metadata)
	select {
	case <-hold.Lost():
		assert.Fail(t, "lost")
	default:
	}
	require.NoError(t, hold.Unlock(ctx))
	require.ErrorIs(t, hold.Unlock(ctx), locker.ErrNotHeld)
}
