package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestOutOfMemory_renewalsGoOnAndTakesFail(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	s := testserver.Redis(t, testserver.RedisArgs("--maxmemory-policy", "noeviction"))
	ctx := t.Context()
	rdb := connect(t, s.Addr())
	c := clientOf(t, rdb, locker.WithTTL(ttl))
	m := c.Mutex("x")
	require.NoError(t, m.Lock(ctx))
	token := m.FencingToken()
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	require.ErrorContains(t, rdb.Set(ctx, "k", "v", 0).Err(), "OOM", "the server is out of memory")

	require.NoError(t, m.Extend(ctx))
	require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld, "of a held lock")
	err := c.Mutex("y").Lock(ctx)
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrHeld)
	var own goredis.Error
	require.ErrorAs(t, err, &own)
	assert.Contains(t, own.Error(), "OOM")
	assert.Zero(t, rdb.Exists(ctx, keyOf("y")).Val(), "nothing is left behind")

	left := rdb.PTTL(ctx, keyOf("x")).Val()
	eventually(t, "it is renewed without memory", func() bool {
		before := left
		left = rdb.PTTL(ctx, keyOf("x")).Val()
		return left > before
	})
	assert.Equal(t, token, m.FencingToken())
	require.NoError(t, m.Unlock(ctx), "without memory")
	require.Error(t, c.Mutex("x").TryLock(ctx))
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	assert.NoError(t, c.Mutex("x").TryLock(ctx))
}
