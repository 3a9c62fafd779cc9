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
	assert.Equal(t, 3, o.DB)
	assert.Equal(t, "u", o.Username)
	assert.Equal(t, "p", o.Password)
	assert.Equal(t, 7, o.PoolSize)
	assert.Equal(t, "me", o.ClientName)
	assert.True(t, o.ContextTimeoutEnabled)
	assert.Equal(t, time.Second, o.ReadTimeout)
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
	assert.Equal(t, "u", o.Username)
	assert.Equal(t, "p", o.Password)
	assert.Equal(t, 7, o.PoolSize)
	assert.Equal(t, "me", o.ClientName)
	assert.Equal(t, 2*time.Second, o.DialTimeout)
	assert.Equal(t, 2*time.Second, o.ReadTimeout, "a second, and what replicas are given")
	assert.Less(t, o.ClusterStateReloadInterval, time.Minute)
	assert.True(t, o.ContextTimeoutEnabled)
	require.NotNil(t, o.TLSConfig)
	assert.Empty(t, o.TLSConfig.ServerName, "each node's own")
	one := openedClient(t, driver.URL{Scheme: "redis", Hosts: []string{"h1"}, Query: url.Values{"cluster": {"true"}}})
	assert.IsType(t, rdb, one)
}

func TestOpen_options(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url                  driver.URL
		addr, user, password string
		db                   int
	}{
		"nothing":       {url: driver.URL{}, addr: "localhost:6379"},
		"a slash":       {url: driver.URL{Path: "/"}, addr: "localhost:6379"},
		"host":          {url: driver.URL{Hosts: []string{"h"}}, addr: "h:6379"},
		"host and port": {url: driver.URL{Hosts: []string{"h:7000"}}, addr: "h:7000"},
		"IPv6":          {url: driver.URL{Hosts: []string{"[::1]"}}, addr: "[::1]:6379"},
		"IPv6 and port": {url: driver.URL{Hosts: []string{"[::1]:7000"}}, addr: "[::1]:7000"},
		"IPv6 zone":     {url: driver.URL{Hosts: []string{"[fe80::1%eth0]:7000"}}, addr: "[fe80::1%eth0]:7000"},
		"database":      {url: driver.URL{Path: "/15"}, addr: "localhost:6379", db: 15},
		"password":      {url: driver.URL{User: url.UserPassword("", "pw")}, addr: "localhost:6379", password: "pw"},
		"user":          {url: driver.URL{User: url.UserPassword("u", "p:@/?")}, addr: "localhost:6379", user: "u", password: "p:@/?"},
	} {
		t.Run(name, func(t *testing.T) {
			c.url.Scheme = "redis"
			o := opened(t, c.url)
			assert.Equal(t, c.addr, o.Addr)
			assert.Equal(t, c.db, o.DB)
			assert.Equal(t, c.user, o.Username)
			assert.Equal(t, c.password, o.Password)
			assert.Nil(t, o.TLSConfig)
			assert.Equal(t, 2, o.Protocol)
			assert.True(t, o.ContextTimeoutEnabled)
		})
	}
}

func TestOpen_parameters(t *testing.T) {
	t.Parallel()
	o := opened(t, driver.URL{Scheme: "redis", Query: url.Values{
		"dial_timeout": {"1s"}, "read_timeout": {"20ms"}, "write_timeout": {"3m"}, "pool_size": {"7"}, "client_name": {"me"},
	}})
	assert.Equal(t, "me", o.ClientName)
	assert.Equal(t, time.Second, o.DialTimeout)
	assert.Equal(t, 20*time.Millisecond, o.ReadTimeout)
	assert.Equal(t, 3*time.Minute, o.WriteTimeout)
	assert.Equal(t, 7, o.PoolSize)
}

func TestOpen_socketIsTheAddress(t *testing.T) {
	t.Parallel()
	o := opened(t, driver.URL{Scheme: "redis", Path: "/3", Query: url.Values{"socket": {"/run/redis.sock"}}})
	assert.Equal(t, "unix", o.Network)
	assert.Equal(t, "/run/redis.sock", o.Addr)
	assert.Equal(t, 3, o.DB)
}

func TestOpen_tlsServerName(t *testing.T) {
	t.Parallel()
	for want, u := range map[string]driver.URL{
		"localhost":         {},
		"h.example":         {Hosts: []string{"h.example:7000"}},
		"::1":               {Hosts: []string{"[::1]:7000"}},
		"other.example.com": {Hosts: []string{"h"}, Query: url.Values{"tls_server_name": {"other.example.com"}}},
	} {
		u.Scheme = "rediss"
		o := opened(t, u)
		require.NotNil(t, o.TLSConfig)
		assert.Equal(t, want, o.TLSConfig.ServerName)
		assert.False(t, o.TLSConfig.InsecureSkipVerify)
	}
}
