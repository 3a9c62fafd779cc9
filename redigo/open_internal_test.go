package redigo

import (
	"context"
	"net/url"
	"runtime"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/test/fuzzurl"
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

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, plainScheme, open,
		"h:1/3?dial_timeout=1s&read_timeout=2s&write_timeout=3s&pool_size=4&client_name=x",
		"s1,[::1]:2/1?master_name=m&sentinel_username=u", "h?replicas=1&replica_timeout=20ms",
		"/0?socket=/run/redis.sock", "h1,h2", "h/x", "h?tls_ca=x")
}

func FuzzOpen_tls(f *testing.F) {
	fuzzurl.Run(f, plainScheme+"s", open, "h?tls_ca=ca.pem&tls_cert=c.pem&tls_key=k.pem&tls_server_name=n", "h?tls_skip_verify=true")
}

// redigo panics if a pool that waits is closed, and asked for a connection when the context ends.
func TestBorrow_ofAPoolThatIsClosed(t *testing.T) {
	p := &redis.Pool{MaxActive: 1, Wait: true}
	require.NoError(t, p.Close())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // it panics half of the time
		_, err := (&runner{pool: p}).borrow(ctx)
		require.Error(t, err)
	}
}
