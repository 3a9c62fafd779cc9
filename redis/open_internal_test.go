package redis

import (
	"net/url"
	"runtime"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/fuzzurl"
)

// opened is what open makes of a URL, without a request.
func opened(t *testing.T, u driver.URL) *goredis.Options {
	t.Helper()
	return openedClient(t, u).(*goredis.Client).Options()
}

func openedClient(t *testing.T, u driver.URL) goredis.UniversalClient {
	t.Helper()
	if u.Query == nil {
		u.Query = url.Values{}
	}
	d, err := open(t.Context(), &u)
	require.NoError(t, err)
	assert.Empty(t, u.Query, "parameters that were not taken")
	rdb := d.(*backend).rdb
	require.NoError(t, d.Close())
	assert.ErrorIs(t, rdb.Ping(t.Context()).Err(), goredis.ErrClosed, "the Driver's own client is closed with it")
	return rdb
}

func TestImport_registersItsSchemesAlone(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"redis", "rediss"}, driver.Schemes())
}

func TestOpen_sentinel(t *testing.T) {
	t.Parallel()
	u := driver.URL{
		Scheme: "redis", Hosts: []string{"s1", "s2:7000"}, Path: "/3", User: url.UserPassword("u", "p"),
		Query: url.Values{"master_name": {"m"}, "sentinel_username": {"su"}, "sentinel_password": {"sp"}, "pool_size": {"7"}, "client_name": {"me"}},
	}
	o := opened(t, u)
	assert.Equal(t, failoverAddr, o.Addr, "or Address would return it")
	assert.Equal(t, []any{3, "u", "p", 7, "me", true}, []any{o.DB, o.Username, o.Password, o.PoolSize, o.ClientName, o.ContextTimeoutEnabled})
	assert.Equal(t, []int{1, 1}, []int{o.DialerRetries, o.MaxRetries}, "so that another sentinel is asked within the DialTimeout")
	for _, c := range []struct {
		query      url.Values
		read, dial time.Duration
	}{
		{url.Values{}, time.Second, 5 * time.Second},
		{url.Values{"read_timeout": {"4s"}}, 4 * time.Second, 12 * time.Second},
		{url.Values{"replicas": {"1"}, "replica_timeout": {"3s"}}, 4 * time.Second, 12 * time.Second},
		{url.Values{"dial_timeout": {"1s"}}, time.Second, time.Second},
	} {
		c.query["master_name"] = []string{"m"}
		o := opened(t, driver.URL{Scheme: "redis", Hosts: []string{"s"}, Query: c.query})
		assert.Equal(t, c.read, o.ReadTimeout)
		assert.Equal(t, c.dial, o.DialTimeout)
	}
}

// They are go-redis's, which a new version may have changed.
func TestOpen_defaultsAreThoseThatThePackageDocuments(t *testing.T) {
	t.Parallel()
	cpus := runtime.GOMAXPROCS(0)
	o := opened(t, driver.URL{Scheme: "redis", Hosts: []string{"h"}})
	assert.Equal(t, []any{5 * time.Second, 5 * time.Second, 5 * time.Second, 10 * cpus}, []any{o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolSize})
	o = opened(t, driver.URL{Scheme: "redis", Hosts: []string{"s"}, Query: url.Values{"master_name": {"m"}}})
	assert.Equal(t, []any{5 * time.Second, time.Second, time.Second, 10 * cpus}, []any{o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolSize})
	c := openedClient(t, driver.URL{Scheme: "redis", Hosts: []string{"h"}, Query: url.Values{"cluster": {"true"}}}).(*goredis.ClusterClient).Options()
	assert.Equal(t, []any{5 * time.Second, time.Second, time.Second, 5 * cpus}, []any{c.DialTimeout, c.ReadTimeout, c.WriteTimeout, c.PoolSize})
	o = opened(t, driver.URL{Scheme: "redis", Hosts: []string{"h"}, Query: url.Values{"read_timeout": {"2s"}}})
	assert.Equal(t, 2*time.Second, o.WriteTimeout)
}

func TestOpen_cluster(t *testing.T) {
	t.Parallel()
	rdb := openedClient(t, driver.URL{
		Scheme: "rediss", Hosts: []string{"h1", "h2:7000", "[::1]"}, Path: "/0", User: url.UserPassword("u", "p"),
		Query: url.Values{"cluster": {"true"}, "pool_size": {"7"}, "dial_timeout": {"2s"}, "replicas": {"1"}, "client_name": {"me"}},
	})
	o := rdb.(*goredis.ClusterClient).Options()
	assert.Equal(t, []string{"h1:6379", "h2:7000", "[::1]:6379"}, o.Addrs)
	assert.Equal(t, []any{"u", "p", 7, "me", 2 * time.Second}, []any{o.Username, o.Password, o.PoolSize, o.ClientName, o.DialTimeout})
	assert.Equal(t, 2*time.Second, o.ReadTimeout, "a second, and what replicas are given")
	assert.Less(t, o.ClusterStateReloadInterval, time.Minute)
	assert.True(t, o.ContextTimeoutEnabled)
	one := openedClient(t, driver.URL{Scheme: "redis", Hosts: []string{"h1"}, Query: url.Values{"cluster": {"true"}}})
	assert.IsType(t, rdb, one)
}

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, plainScheme, open,
		"h:1/3?dial_timeout=1s&read_timeout=2s&write_timeout=3s&pool_size=4&client_name=x",
		"s1,s2/1?master_name=m&sentinel_username=u", "[::1]:7000,h?cluster=true&replicas=1&replica_timeout=20ms",
		"/0?socket=/run/redis.sock", "h1,h2", "h/x", "h?tls_ca=x", "h?pool_size=9999999999999")
}

func FuzzOpen_tls(f *testing.F) {
	fuzzurl.Run(f, plainScheme+"s", open,
		"h?tls_ca=ca.pem&tls_cert=c.pem&tls_key=k.pem&tls_server_name=n", "h?tls_skip_verify=true", "?socket=/x")
}
