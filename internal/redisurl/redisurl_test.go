package redisurl_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript"
	"github.com/go-locker/locker/internal/redisurl"
)

// query is a URL with those parameters, given as name, value, name, value.
func query(pairs ...string) *driver.URL {
	u := &driver.URL{Scheme: "redis", Query: url.Values{}}
	for i := 0; i < len(pairs); i += 2 {
		u.Query.Set(pairs[i], pairs[i+1])
	}
	return u
}

func TestSocket(t *testing.T) {
	path, err := redisurl.Socket(query("socket", "/run/redis.sock"), "redis")
	require.NoError(t, err)
	assert.Equal(t, "/run/redis.sock", path)
	path, err = redisurl.Socket(query(), "redis")
	require.NoError(t, err)
	assert.Empty(t, path)
	withHost, secure := query("socket", "/run/redis.sock"), query("socket", "/run/redis.sock")
	withHost.Hosts, secure.Scheme = []string{"h"}, "rediss"
	for want, u := range map[string]*driver.URL{
		"absolute path": query("socket", "redis.sock"), `socket=""`: query("socket", ""), "in place": withHost, "TLS": secure,
	} {
		_, err := redisurl.Socket(u, "redis")
		require.ErrorContains(t, err, "parameter socket")
		if want != "in place" {
			require.ErrorContains(t, err, want)
		}
	}
}

func TestClientName(t *testing.T) {
	name, err := redisurl.ClientName(query("client_name", "shop-3:orders"))
	require.NoError(t, err)
	assert.Equal(t, "shop-3:orders", name)
	name, err = redisurl.ClientName(query())
	require.NoError(t, err)
	assert.Empty(t, name)
	for _, bad := range []string{"", "two words", "line\n", "naïve", "\x7f"} {
		_, err := redisurl.ClientName(query("client_name", bad))
		require.ErrorContains(t, err, "client_name", "%q", bad)
	}
}

func TestSentinels(t *testing.T) {
	for _, c := range []struct {
		u    *driver.URL
		want redisurl.Sentinel
	}{
		{query(), redisurl.Sentinel{}},
		{query("master_name", "m"), redisurl.Sentinel{Master: "m"}},
		{query("master_name", "m", "sentinel_password", "p"), redisurl.Sentinel{Master: "m", Password: "p"}},
		{
			query("master_name", "m", "sentinel_username", "u", "sentinel_password", "p"),
			redisurl.Sentinel{Master: "m", Username: "u", Password: "p"},
		},
	} {
		got, err := redisurl.Sentinels(c.u)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
		assert.Empty(t, c.u.Query)
	}
	for _, u := range []*driver.URL{
		query("master_name", ""), query("sentinel_username", "u"), query("sentinel_password", "p"),
		query("master_name", "m", "sentinel_username", "u"), query("master_name", "m", "sentinel_password", ""),
		query("master_name", "m", "sentinel_username", "", "sentinel_password", "p"),
	} {
		_, err := redisurl.Sentinels(u)
		assert.ErrorContains(t, err, "parameter ")
	}
}

func TestDatabase(t *testing.T) {
	for path, want := range map[string]int{"": 0, "/": 0, "/0": 0, "/15": 15} {
		db, err := redisurl.Database(&driver.URL{Scheme: "redis", Path: path})
		require.NoError(t, err)
		assert.Equal(t, want, db)
	}
	for _, path := range []string{"/x", "/-1", "/+1", "/1.5", "/0/1", "/99999999999"} {
		_, err := redisurl.Database(&driver.URL{Scheme: "redis", Path: path})
		assert.ErrorContains(t, err, "database number", path)
	}
}

func TestReplicas(t *testing.T) {
	for _, c := range []struct {
		u    *driver.URL
		want redisscript.Replicas
	}{
		{query(), redisscript.Replicas{}},
		{query("replicas", "2"), redisscript.Replicas{N: 2, Timeout: time.Second}},
		{query("replicas", "1", "replica_timeout", "50ms"), redisscript.Replicas{N: 1, Timeout: 50 * time.Millisecond}},
	} {
		r, err := redisurl.Replicas(c.u)
		require.NoError(t, err)
		assert.Equal(t, c.want, r)
		assert.Empty(t, c.u.Query)
	}
	for _, u := range []*driver.URL{
		query("replicas", "0"), query("replicas", "x"), query("replica_timeout", "1s"),
		query("replicas", "1", "replica_timeout", "0s"), query("replicas", "1", "replica_timeout", "1500us"),
	} {
		_, err := redisurl.Replicas(u)
		assert.ErrorContains(t, err, "replica")
	}
}
