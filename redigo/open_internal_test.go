package redigo

import (
	"net/url"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
)

func opened(t *testing.T, hosts []string, pairs ...string) *backend {
	t.Helper()
	u := &driver.URL{Scheme: "redigo", Hosts: hosts, Query: url.Values{}}
	for i := 0; i < len(pairs); i += 2 {
		u.Query.Set(pairs[i], pairs[i+1])
	}
	d, err := open(t.Context(), u)
	require.NoError(t, err)
	assert.Empty(t, u.Query, "parameters that were not taken")
	t.Cleanup(func() { _ = d.Close() })
	return d.(*backend)
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
	assert.Equal(t, script.Replicas{N: 2, Timeout: 50 * time.Millisecond}, d.runner.replicas)
}
