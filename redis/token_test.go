package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestToken_staysBelow2To53(t *testing.T) {
	t.Parallel()
	const top = 1<<53 - 1
	s := testserver.Redis(t)
	ctx := t.Context()
	rdb := connect(t, s.Addr())
	m := clientOf(t, rdb, locker.WithoutRenewal()).Mutex("x")
	for _, last := range []uint64{top, top + 1, top + 2, 1 << 60} {
		require.NoError(t, rdb.HSet(ctx, keyOf("x"), "token", last, "lapsed", 0).Err())
		before, err := rdb.HGetAll(ctx, keyOf("x")).Result()
		require.NoError(t, err)
		err = m.Lock(ctx)
		require.Error(t, err, "after %d", last)
		require.NotErrorIs(t, err, locker.ErrHeld)
		require.ErrorContains(t, err, "2^53")
		after, err := rdb.HGetAll(ctx, keyOf("x")).Result()
		require.NoError(t, err)
		assert.Equal(t, before, after, "nothing is taken")
	}
	require.NoError(t, rdb.HSet(ctx, keyOf("x"), "token", uint64(top-1), "lapsed", 0).Err())
	require.NoError(t, m.Lock(ctx))
	assert.Equal(t, uint64(top), m.FencingToken(), "exact, to the last digit")
	assert.Equal(t, "9007199254740991", rdb.HGet(ctx, keyOf("x"), "token").Val())
	require.NoError(t, m.Unlock(ctx))
	require.Error(t, m.Lock(ctx))
}

func TestToken_isStoredInAllItsDigits(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	d := driverOf(t, rdb)
	for _, token := range []uint64{1, 9, 100_000_000_000_000, 123_456_789_012_345, 999_999_999_999_999, 1<<53 - 1} {
		name := fmt.Sprint(token)
		require.NoError(t, rdb.HSet(t.Context(), "{"+name+"}", "token", token-1, "lapsed", token-1).Err())
		lease, err := claims.Propose(t.Context(), d, driver.Request{Name: name, TTL: time.Minute}, token)
		require.NoError(t, err)
		assert.Equal(t, token, lease.Token())
		fields := rdb.HGetAll(t.Context(), "{"+name+"}").Val()
		assert.Equal(t, fmt.Sprint(token), fields["token"])
		assert.Equal(t, fmt.Sprint(token-1), fields["lapsed"])
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, lease.Release(t.Context()), "again")
	}
}

func TestStorage_theHashExpiresAMinuteAfterTheLock(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	s := testserver.Redis(t)
	ctx := t.Context()
	rdb := connect(t, s.Addr())
	c := clientOf(t, rdb, locker.WithTTL(ttl), locker.WithoutRenewal(), locker.WithMetadata("me"))
	m := c.Mutex("x")
	expiresWithTTL := func(after string) {
		t.Helper()
		ms, err := rdb.Do(ctx, "PTTL", keyOf("x")).Int64()
		require.NoError(t, err)
		left := time.Duration(ms)*time.Millisecond - keep
		assert.LessOrEqual(t, left, ttl, after)
		assert.Greater(t, left, ttl-2*time.Second, after)
	}
	shrink := func() {
		t.Helper()
		require.NoError(t, rdb.PExpire(ctx, keyOf("x"), keep+ttl/2).Err())
	}
	require.NoError(t, m.Lock(ctx))
	expiresWithTTL("the take")
	assert.Equal(t, "me", rdb.HGet(ctx, keyOf("x"), "meta").Val())
	shrink()
	require.NoError(t, m.Extend(ctx))
	expiresWithTTL("an extension")
	require.NoError(t, m.Unlock(ctx))
	expiresWithTTL("a release, which leaves it alone")
	fields := rdb.HGetAll(ctx, keyOf("x")).Val()
	assert.NotContains(t, fields, "owner")
	assert.NotContains(t, fields, "meta")
	shrink()
	require.NoError(t, m.Lock(ctx))
	expiresWithTTL("the next take")
	assert.Equal(t, "me", rdb.HGet(ctx, keyOf("x"), "meta").Val())
	require.NoError(t, m.Unlock(ctx))

	other := clientOf(t, rdb, locker.WithTTL(ttl), locker.WithoutRenewal()).Mutex("x")
	require.NoError(t, other.Lock(ctx))
	assert.Empty(t, rdb.HGet(ctx, keyOf("x"), "meta").Val(), "not that of another holder")
	require.NoError(t, other.Unlock(ctx))
}

// markKey is that of names without a prefix.
const markKey = "{%mark}"

func TestStorage_isBoundedAfterManyNames(t *testing.T) {
	t.Parallel()
	names := 1000
	if testwait.Thorough() {
		names = 10_000
	}
	const (
		workers = 16
		ttl     = 10 * time.Second
	)
	s := testserver.Redis(t, testserver.RedisClock())
	ctx := t.Context()
	rdb := connect(t, s.Addr(), func(o *goredis.Options) { o.PoolSize = workers })
	d := driverOf(t, rdb)
	empty := rdb.Info(ctx, "memory").Val()
	var done []<-chan error
	for w := range workers {
		done = append(done, async(func() error {
			for i := w; i < names; i += workers {
				l, err := claims.Take(ctx, d, driver.Request{Name: fmt.Sprintf("orders/%d", i), TTL: ttl})
				if err != nil {
					return err
				}
				if err := l.Release(ctx); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for _, d := range done {
		require.NoError(t, <-d)
	}
	assert.EqualValues(t, names+1, rdb.DBSize(ctx).Val(), "one key a name, and the mark")
	keys, ttls, fields := rdb.Keys(ctx, "*").Val(), []*goredis.DurationCmd{}, []*goredis.IntCmd{}
	_, err := rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for _, k := range keys {
			ttls = append(ttls, p.PTTL(ctx, k))
			fields = append(fields, p.HLen(ctx, k))
		}
		return nil
	})
	require.NoError(t, err)
	for i, k := range keys {
		if k == markKey {
			assert.Greater(t, ttls[i].Val(), 89*24*time.Hour, "the mark is kept for long")
			continue
		}
		require.Greater(t, ttls[i].Val(), keep, k)
		require.LessOrEqual(t, ttls[i].Val(), keep+ttl, k)
		require.EqualValues(t, 3, fields[i].Val(), "%s: token, before and lapsed alone", k)
	}
	t.Logf("a released name costs %d bytes at the server", rdb.MemoryUsage(ctx, keys[0]).Val())
	t.Logf("memory: %s → %s", line(empty, "used_memory:"), line(rdb.Info(ctx, "memory").Val(), "used_memory:"))

	s.ShiftClock(keep + ttl)
	require.Eventually(t, func() bool { return rdb.DBSize(ctx).Val() == 1 }, 20*time.Second, 20*time.Millisecond, "a minute later the mark is all that is left")
	assert.Equal(t, []string{markKey}, rdb.Keys(ctx, "*").Val())
}

func line(info, prefix string) string {
	for l := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(l, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "unknown"
}
