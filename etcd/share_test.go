package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/shares"
	"github.com/go-locker/locker/internal/test/testserver"
)

func sharesAt(t testing.TB, addr string) shares.Backend {
	t.Helper()
	direct := connect(t, addr)
	return shares.Backend{
		Addr: addr, Name: space(t) + ":x", TTL: 20 * time.Second,
		Open:  func(t testing.TB, addr string) shares.Driver { return driverOf(t, connect(t, addr)) },
		Queue: func(t testing.TB) []string { return queue(t, direct, "x") },
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	shares.Run(t, func(t testing.TB) shares.Backend { return sharesAt(t, testserver.SharedEtcd(t).Addr()) })
}

func TestInspect_showsTheLongestOfTheShares(t *testing.T) {
	t.Parallel()
	b := sharesAt(t, testserver.SharedEtcd(t).Addr())
	d := b.Open(t, b.Addr)
	for _, ttl := range []time.Duration{10 * time.Second, time.Hour, 20 * time.Second} {
		_, err := d.AcquireShared(t.Context(), driver.Request{Name: b.Name, TTL: ttl})
		require.NoError(t, err)
	}
	state, err := d.Inspect(t.Context(), b.Name)
	require.NoError(t, err)
	assert.Greater(t, state.Left, 30*time.Minute)
	assert.Len(t, state.Shares, 3)
}
