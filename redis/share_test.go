package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

func sharedFor(ttl time.Duration) driver.Request { return driver.Request{Name: "locker:x", TTL: ttl} }

func read(t *testing.T, d driver.Driver, ttl time.Duration) driver.Lease {
	t.Helper()
	l, err := claims.Share(t.Context(), d, sharedFor(ttl))
	require.NoError(t, err)
	return l
}

func TestShare_theRightsOfAWaiterAreEnough(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(
		userWith("waits", append([]string{"zadd", "zcard", "zpopmin", "zrange", "zrem", "zscore"}, rights...)), userWith("no-z", rights)))
	d := driverOf(t, connect(t, s.Addr(), as("waits")))
	first, second := read(t, d, time.Minute), read(t, d, time.Minute)
	state, err := driverOf(t, connect(t, s.Addr())).Inspect(t.Context(), "locker:x")
	require.NoError(t, err)
	assert.True(t, state.Held)
	assert.Len(t, state.Shares, 2)
	for _, l := range []driver.Lease{first, second} {
		require.NoError(t, l.Extend(t.Context(), time.Minute))
		require.NoError(t, l.Release(t.Context()))
	}
	l := take(t, d, "locker:x", time.Minute)
	require.NoError(t, l.(driver.Downgrader).Downgrade(t.Context()))
	require.NoError(t, l.Release(t.Context()))

	none := driverOf(t, connect(t, s.Addr(), as("no-z")))
	_, err = claims.Share(t.Context(), none, sharedFor(time.Minute))
	wantNoPerm(t, err)
	assert.False(t, isHeldAt(t, connect(t, s.Addr()), keyOf("x")), "nothing is taken")
	l = take(t, none, "locker:x", time.Minute)
	wantNoPerm(t, l.(driver.Downgrader).Downgrade(t.Context()))
	require.NoError(t, l.Extend(t.Context(), time.Minute), "it is what it was")
	require.NoError(t, l.Release(t.Context()))
}
