package redigo

import (
	"context"
	"net/url"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func opened(t *testing.T, hosts []string, pairs ...string) *Driver {
	t.Helper()
	u := &driver.URL{Scheme: "redigo", Hosts: hosts, Query: url.Values{}}
	for i := 0; i < len(pairs); i += 2 {
		u.Query.Set(pairs[i], pairs[i+1])
	}
	d, err := open(t.Context(), u)
	require.NoError(t, err)
	assert.Empty(t, u.Query, "parameters that were not taken")
	t.Cleanup(func() { _ = d.Close() })
	return d.(*Driver)
}

func TestOpen_address(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "localhost:6379", opened(t, nil).Address())
	assert.Equal(t, "[::1]:7000", opened(t, []string{"[::1]:7000"}).Address())
	assert.Equal(t, "/run/redis.sock", opened(t, nil, "socket", "/run/redis.sock").Address())
	assert.Empty(t, opened(t, []string{"h"}, "master_name", "m").Address(), "it is not one server")
}

func TestOpen_pool(t *testing.T) {
	t.Parallel()
	d := opened(t, nil)
	assert.Equal(t, 10*runtime.GOMAXPROCS(0), d.runner.pool.MaxActive)
	assert.True(t, d.runner.pool.Wait)
	d = opened(t, nil, "pool_size", "7", "replicas", "2", "replica_timeout", "50ms")
	assert.Equal(t, 7, d.runner.pool.MaxActive)
	assert.Equal(t, 7, d.runner.pool.MaxIdle)
	assert.Equal(t, redisscript.Replicas{N: 2, Timeout: 50 * time.Millisecond}, d.runner.replicas)
}

func TestSentinel_theCallerSendsItsRequest(t *testing.T) {
	t.Parallel()
	g := testserver.Sentinel(t)
	d := opened(t, g.Addrs(), "master_name", g.MasterName())
	var borrowed, byOthers atomic.Int64
	test := d.runner.pool.TestOnBorrowContext
	d.runner.pool.TestOnBorrowContext = func(ctx context.Context, c redis.Conn, since time.Time) error {
		borrowed.Add(1)
		if !strings.Contains(string(debug.Stack()), "locker.(*Mutex).") {
			byOthers.Add(1)
		}
		return test(ctx, c, since)
	}
	c, err := locker.New(d, locker.WithTTL(4*time.Minute), locker.WithoutRenewal())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	m := c.Mutex("x")
	for range 10 {
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	}
	assert.Zero(t, byOthers.Load())
	assert.Positive(t, borrowed.Load())

	g.Primary().Stop()
	require.ErrorIs(t, m.Lock(testwait.Context(t, 100*time.Millisecond)), context.DeadlineExceeded)
	g.Primary().Continue()
	require.NoError(t, m.Lock(testwait.Context(t, 20*time.Second)))
}
