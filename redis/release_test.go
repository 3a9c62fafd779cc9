package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
)

// What may come between the end of a hold at the server and its Release.
var successors = map[string]func(t *testing.T, other *locker.Mutex){
	"nobody came":   func(*testing.T, *locker.Mutex) {},
	"another holds": func(t *testing.T, other *locker.Mutex) { require.NoError(t, other.Lock(t.Context())) },
	"another took and released": func(t *testing.T, other *locker.Mutex) {
		require.NoError(t, other.Lock(t.Context()))
		require.NoError(t, other.Unlock(t.Context()))
	},
	"two took and released, another holds": func(t *testing.T, other *locker.Mutex) {
		for range 2 {
			require.NoError(t, other.Lock(t.Context()))
			require.NoError(t, other.Unlock(t.Context()))
		}
		require.NoError(t, other.Lock(t.Context()))
	},
}

// wantOthersHold fails if the hold of other, if it has one, is not as it was.
func wantOthersHold(t *testing.T, rdb *goredis.Client, other *locker.Mutex) {
	t.Helper()
	if other.FencingToken() == 0 {
		return
	}
	assert.True(t, isHeldAt(t, rdb, keyOf(other.Name())), "the other still holds at the server")
	assert.NoError(t, other.Extend(t.Context()), "the other still holds")
	assert.NoError(t, other.Unlock(t.Context()))
}

func TestRelease_ofALapsedHoldIsErrLost(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	c := clientOf(t, rdb, locker.WithoutRenewal())
	for name, succeed := range successors {
		t.Run(name, func(t *testing.T) {
			// A lease of its own: a Mutex would not ask the server after the deadline.
			lease := take(t, driverOf(t, rdb), "locker:"+t.Name(), time.Minute)
			other := c.Mutex(t.Name())
			expire(t, rdb, keyOf(t.Name()))
			succeed(t, other)
			require.ErrorIs(t, lease.Extend(t.Context(), time.Minute), locker.ErrLost)
			require.ErrorIs(t, lease.Release(t.Context()), locker.ErrLost)
			require.ErrorIs(t, lease.Release(t.Context()), locker.ErrLost, "asked again")
			wantOthersHold(t, rdb, other)
		})
	}
}

func TestUnlock_afterTheServerForgotIsErrLost(t *testing.T) {
	t.Parallel()
	for how, forget := range map[string]func(*testing.T, *testserver.RedisServer, *goredis.Client, string){
		"FLUSHALL": func(t *testing.T, _ *testserver.RedisServer, rdb *goredis.Client, _ string) {
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
		},
		"DEL": func(t *testing.T, _ *testserver.RedisServer, rdb *goredis.Client, name string) {
			require.EqualValues(t, 1, rdb.Del(t.Context(), keyOf(name)).Val())
		},
		"restart": func(t *testing.T, s *testserver.RedisServer, _ *goredis.Client, _ string) {
			s.Kill()
			s.Restart()
		},
		"EXPIRE": func(t *testing.T, _ *testserver.RedisServer, rdb *goredis.Client, name string) {
			require.NoError(t, rdb.PExpire(t.Context(), keyOf(name), time.Millisecond).Err())
			eventually(t, "it has expired", func() bool { return rdb.Exists(t.Context(), keyOf(name)).Val() == 0 })
		},
	} {
		t.Run(how, func(t *testing.T) {
			s := testserver.Redis(t)
			rdb := connect(t, s.Addr())
			c := clientOf(t, rdb, locker.WithoutRenewal())
			for name, succeed := range successors {
				t.Run(name, func(t *testing.T) {
					m, other := c.Mutex(t.Name()), c.Mutex(t.Name())
					require.NoError(t, m.Lock(t.Context()))
					old := m.FencingToken()
					forget(t, s, rdb, t.Name())
					succeed(t, other)
					if token := other.FencingToken(); token != 0 {
						assert.Greater(t, token, old)
					}
					require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
					wantOthersHold(t, rdb, other)
				})
			}
		})
	}
}

func TestRelease_ofAnotherOwnerDoesNothing(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	d := driverOf(t, rdb)
	first := take(t, d, "x", time.Minute)
	require.NoError(t, first.Release(t.Context()))
	second := take(t, d, "x", time.Minute)
	before, err := rdb.HGetAll(t.Context(), "{x}").Result()
	require.NoError(t, err)
	assert.NoError(t, first.Release(t.Context()), "it was released, and a second request cannot know that it is the second")
	require.ErrorIs(t, first.Extend(t.Context(), time.Hour), locker.ErrLost)
	after, err := rdb.HGetAll(t.Context(), "{x}").Result()
	require.NoError(t, err)
	assert.Equal(t, before, after)
	assert.NoError(t, second.Release(t.Context()))
}

// A hold whose take was answered by nobody is released without a token.
func TestRelease_withoutATokenSpeaksForItsOwnHoldAlone(t *testing.T) {
	t.Parallel()
	f := newFaultyTTL(t, time.Second, heedingCtx)
	ctx := t.Context()
	f.proxy.DropReplies(true)
	lease, err := f.driver.Acquire(withTimeout(t, 100*time.Millisecond), driver.Request{Name: "x", TTL: time.Minute})
	require.Error(t, err)
	require.NotNil(t, lease, "the outcome is not known")
	assert.Zero(t, lease.Token())
	eventually(t, "the server has granted", func() bool { return isHeldAt(t, f.direct, "{x}") })
	f.proxy.DropReplies(false)
	f.proxy.ResetConns()
	require.NoError(t, lease.Release(ctx))
	require.False(t, isHeldAt(t, f.direct, "{x}"))
	take(t, f.driver, "x", time.Minute)
	require.ErrorIs(t, lease.Release(ctx), locker.ErrLost)
	assert.True(t, isHeldAt(t, f.direct, "{x}"), "the next holder's hold")
}

// A failover that lost the take, played by putting the hash back as it was before: the new primary has a
// history of the lock, and the hold is not in it.
func TestRelease_afterAFailoverThatForgotIsErrLost(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	c := clientOf(t, rdb, locker.WithoutRenewal())
	for name, succeed := range successors {
		t.Run(name, func(t *testing.T) {
			ctx, key := t.Context(), keyOf(t.Name())
			other := c.Mutex(t.Name())
			require.NoError(t, other.Lock(ctx))
			require.NoError(t, other.Unlock(ctx))
			before, err := rdb.Dump(ctx, key).Result()
			require.NoError(t, err)
			lease := take(t, driverOf(t, rdb), "locker:"+t.Name(), time.Minute)
			require.NoError(t, rdb.RestoreReplace(ctx, key, keep, before).Err())
			succeed(t, other)
			require.ErrorIs(t, lease.Release(ctx), locker.ErrLost)
			require.ErrorIs(t, lease.Release(ctx), locker.ErrLost, "asked again")
			wantOthersHold(t, rdb, other)
		})
	}
}
