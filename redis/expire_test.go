package redis_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Tokens are readings of the server's clock at the take, so that the server itself says how much
// time there was between two.
func TestExpire_atTheServerIsAfterTheTTLAndNotBefore(t *testing.T) {
	t.Parallel()
	const ttl = time.Second // half of which an attempt may take
	s := testserver.Redis(t)
	d := driverOf(t, connect(t, s.Addr()))
	for i := range 2 {
		name := fmt.Sprint(i)
		first := take(t, d, name, ttl)
		var second driver.Lease
		var refused time.Time // the latest attempt that was refused
		for {
			sent := time.Now()
			l, err := d.Acquire(t.Context(), driver.Request{Name: name, TTL: ttl})
			if !errors.Is(err, locker.ErrHeld) {
				require.NoError(t, err)
				second = l
				break
			}
			refused = sent
			time.Sleep(tick)
		}
		after := time.Duration(second.Token()-first.Token()) * time.Microsecond
		// The server keeps expiries in whole milliseconds.
		assert.GreaterOrEqual(t, after, ttl-time.Millisecond)
		assert.LessOrEqual(t, after, ttl+time.Millisecond+time.Since(refused), "no later than the first attempt after the TTL")
		t.Logf("TTL %v: taken over %v after the take", ttl, after)
		assert.ErrorIs(t, first.Extend(t.Context(), ttl), locker.ErrLost, "it is not revived")
	}
}

func TestExpire_isAtTheExtendedTTL(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	d := driverOf(t, rdb)
	lease := take(t, d, "x", time.Minute)
	expire(t, rdb, "{x}")
	require.ErrorIs(t, lease.Extend(t.Context(), time.Minute), locker.ErrLost)
	assert.False(t, isHeldAt(t, rdb, "{x}"), "a hold that expired is not revived")

	next := take(t, d, "x", 10*time.Second)
	require.NoError(t, next.Extend(t.Context(), time.Minute))
	ms, err := rdb.Do(t.Context(), "PTTL", "{x}").Int64()
	require.NoError(t, err)
	assert.InDelta(t, (keep + time.Minute).Milliseconds(), ms, 2000)
	assert.Greater(t, next.Validity(), 58*time.Second)
	assert.LessOrEqual(t, next.Validity(), time.Minute)
}

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
