package redis

import (
	"net/url"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// opened is what open makes of a URL, without a request.
func opened(t *testing.T, u locker.URL) *goredis.Options {
	t.Helper()
	if u.Query == nil {
		u.Query = url.Values{}
	}
	d, err := open(t.Context(), &u)
	require.NoError(t, err)
	assert.Empty(t, u.Query, "parameters that were not taken")
	rdb := d.(*Driver).rdb.(*goredis.Client)
	o := *rdb.Options()
	require.NoError(t, d.Close())
	assert.ErrorIs(t, rdb.Ping(t.Context()).Err(), goredis.ErrClosed, "the Driver's own client is closed with it")
	return &o
}

func TestOpen_options(t *testing.T) {
	for name, c := range map[string]struct {
		url                  locker.URL
		addr, user, password string
		db                   int
	}{
		"nothing":       {url: locker.URL{}, addr: "localhost:6379"},
		"a slash":       {url: locker.URL{Path: "/"}, addr: "localhost:6379"},
		"host":          {url: locker.URL{Hosts: []string{"h"}}, addr: "h:6379"},
		"host and port": {url: locker.URL{Hosts: []string{"h:7000"}}, addr: "h:7000"},
		"IPv6":          {url: locker.URL{Hosts: []string{"[::1]"}}, addr: "[::1]:6379"},
		"IPv6 and port": {url: locker.URL{Hosts: []string{"[::1]:7000"}}, addr: "[::1]:7000"},
		"IPv6 zone":     {url: locker.URL{Hosts: []string{"[fe80::1%eth0]:7000"}}, addr: "[fe80::1%eth0]:7000"},
		"database":      {url: locker.URL{Path: "/15"}, addr: "localhost:6379", db: 15},
		"password":      {url: locker.URL{User: url.UserPassword("", "pw")}, addr: "localhost:6379", password: "pw"},
		"user":          {url: locker.URL{User: url.UserPassword("u", "p:@/?")}, addr: "localhost:6379", user: "u", password: "p:@/?"},
	} {
		t.Run(name, func(t *testing.T) {
			c.url.Scheme = "redis"
			o := opened(t, c.url)
			assert.Equal(t, c.addr, o.Addr)
			assert.Equal(t, c.db, o.DB)
			assert.Equal(t, c.user, o.Username)
			assert.Equal(t, c.password, o.Password)
			assert.Nil(t, o.TLSConfig)
			assert.True(t, o.ContextTimeoutEnabled)
		})
	}
}

func TestOpen_parameters(t *testing.T) {
	o := opened(t, locker.URL{Scheme: "redis", Query: url.Values{
		"dial_timeout": {"1s"}, "read_timeout": {"20ms"}, "write_timeout": {"3m"}, "pool_size": {"7"},
	}})
	assert.Equal(t, time.Second, o.DialTimeout)
	assert.Equal(t, 20*time.Millisecond, o.ReadTimeout)
	assert.Equal(t, 3*time.Minute, o.WriteTimeout)
	assert.Equal(t, 7, o.PoolSize)
}

func TestOpen_tlsServerName(t *testing.T) {
	for want, u := range map[string]locker.URL{
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
