package migrating

import (
	"context"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/redis"
)

func redsyncWay(rs *redsync.Redsync) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		m := rs.NewMutex("orders/42", redsync.WithExpiry(10*time.Second))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		defer m.UnlockContext(ctx) //nolint:errcheck // as it is often written
		return work(ctx)
	}
}

func TestRedsync_changeOver(t *testing.T) {
	rdb := startRedis(t)
	rs := redsync.New(redsyncredis.NewPool(rdb))

	client, err := redis.New(rdb, locker.WithTTL(10*time.Second))
	changeOver(t, redsyncWay(rs), made(t)(client, err))
}

func TestRedsync_givesUp(t *testing.T) {
	ctx, rs := t.Context(), redsync.New(redsyncredis.NewPool(startRedis(t)))
	require.NoError(t, rs.NewMutex("orders/42").LockContext(ctx))
	var taken *redsync.ErrTaken
	m := rs.NewMutex("orders/42", redsync.WithTries(2), redsync.WithRetryDelay(time.Millisecond))
	require.ErrorAs(t, m.LockContext(ctx), &taken, "with time left")
	require.ErrorAs(t, m.TryLockContext(ctx), &taken)
}

func TestRedsync_afterTheExpiry(t *testing.T) {
	ctx, rdb := t.Context(), startRedis(t)
	rs := redsync.New(redsyncredis.NewPool(rdb))
	m := rs.NewMutex("orders/42", redsync.WithExpiry(500*time.Millisecond), redsync.WithTimeoutFactor(0.9))
	require.NoError(t, m.LockContext(ctx))
	assert.True(t, m.Until().After(time.Now().Add(-time.Minute)))
	outlast(t, rdb, "orders/42")
	assert.NotEmpty(t, m.Value(), "it says nothing of the loss")
	ok, err := m.UnlockContext(ctx)
	assert.False(t, ok)
	require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)

	require.NoError(t, rs.NewMutex("orders/42").LockContext(ctx))
	var taken *redsync.ErrTaken
	ok, err = m.ExtendContext(ctx)
	assert.False(t, ok)
	require.ErrorAs(t, err, &taken)
	ok, err = m.UnlockContext(ctx)
	assert.False(t, ok)
	require.ErrorAs(t, err, &taken)
}

func TestRedsync_setNXOnExtendRevives(t *testing.T) {
	ctx, rdb := t.Context(), startRedis(t)
	m := redsync.New(redsyncredis.NewPool(rdb)).NewMutex("orders/42", redsync.WithSetNXOnExtend())
	require.NoError(t, m.LockContext(ctx))
	require.NoError(t, rdb.Del(ctx, "orders/42").Err())
	ok, err := m.ExtendContext(ctx)
	require.NoError(t, err)
	assert.True(t, ok)
}

func TestRedsync_aValueIsHandedOver(t *testing.T) {
	ctx, rs := t.Context(), redsync.New(redsyncredis.NewPool(startRedis(t)))
	m := rs.NewMutex("orders/42")
	require.NoError(t, m.LockContext(ctx))
	ok, err := rs.NewMutex("orders/42", redsync.WithValue(m.Value())).UnlockContext(ctx)
	require.NoError(t, err)
	assert.True(t, ok)
}
