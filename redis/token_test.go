package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
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
