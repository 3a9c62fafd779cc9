package redisurl_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/redisscript"
	"github.com/go-locker/locker/internal/redisurl"
)

// query is a URL with those parameters, given as name, value, name, value.
func query(pairs ...string) *locker.URL {
	u := &locker.URL{Scheme: "redis", Query: url.Values{}}
	for i := 0; i < len(pairs); i += 2 {
		u.Query.Set(pairs[i], pairs[i+1])
	}
	return u
}

func TestAddr(t *testing.T) {
	for want, hosts := range map[string][]string{"localhost:6379": nil, "h:6379": {"h"}, "[::1]:7000": {"[::1]:7000"}} {
		addr, err := redisurl.Addr(&locker.URL{Scheme: "redis", Hosts: hosts})
		require.NoError(t, err)
		assert.Equal(t, want, addr)
	}
	_, err := redisurl.Addr(&locker.URL{Scheme: "redis", Hosts: []string{"h1", "h2"}})
	require.ErrorContains(t, err, "one host")
}

func TestDatabase(t *testing.T) {
	for path, want := range map[string]int{"": 0, "/": 0, "/0": 0, "/15": 15} {
		db, err := redisurl.Database(&locker.URL{Scheme: "redis", Path: path})
		require.NoError(t, err)
		assert.Equal(t, want, db)
	}
	for _, path := range []string{"/x", "/-1", "/+1", "/1.5", "/0/1", "/99999999999"} {
		_, err := redisurl.Database(&locker.URL{Scheme: "redis", Path: path})
		assert.ErrorContains(t, err, "database number", path)
	}
}

func TestReplicas(t *testing.T) {
	for _, c := range []struct {
		u    *locker.URL
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
	for _, u := range []*locker.URL{
		query("replicas", "0"), query("replicas", "x"), query("replica_timeout", "1s"),
		query("replicas", "1", "replica_timeout", "0s"), query("replicas", "1", "replica_timeout", "1500us"),
	} {
		_, err := redisurl.Replicas(u)
		assert.ErrorContains(t, err, "replica")
	}
}
