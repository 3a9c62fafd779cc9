package redlock_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	_ "github.com/go-locker/locker/redigo"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	for _, query := range []string{
		"", "?driver=redis", "?driver=redigo", "?node_timeout=200ms&ttl=5s&prefix=app", "?read_timeout=1s",
	} {
		c, err := locker.Open(t.Context(), "redlock://"+strings.Join(q.addrs(), ",")+"/1"+query)
		require.NoError(t, err, query)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()), query)
		for _, rdb := range q.direct {
			assert.Equal(t, "0", rdb.Do(t.Context(), "DBSIZE").String()[len("DBSIZE: "):], "database 1 it is")
		}
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, c.Close())
	}
}

func TestOpen_withAPasswordAndTLS(t *testing.T) {
	t.Parallel()
	var addrs []string
	var last *testserver.RedisServer
	for range 3 {
		last = testserver.Redis(t, testserver.RedisConfig("user u on >p@ss ~* +@all"))
		addrs = append(addrs, last.Addr())
	}
	c, err := locker.Open(t.Context(), "redlock://u:p%40ss@"+strings.Join(addrs, ","))
	require.NoError(t, err)
	require.NoError(t, c.Mutex("x").Lock(t.Context()))
	require.NoError(t, c.Close())

	for _, scheme := range []string{"redis", "redigo"} {
		c, err = locker.Open(t.Context(), "redlock://u:wr%40ng@"+strings.Join(addrs, ",")+"?driver="+scheme)
		require.NoError(t, err)
		err = c.Mutex("x").TryLock(t.Context())
		for _, addr := range addrs {
			require.ErrorContains(t, err, addr)
		}
		require.ErrorContains(t, err, "WRONGPASS")
		assert.NotContains(t, err.Error(), "wr", "no secret is in it")
		require.NoError(t, c.Close())
	}

	// Their certificates are of three authorities: only one of them is known.
	addrs = nil
	for range 3 {
		last = testserver.Redis(t, testserver.RedisTLS())
		addrs = append(addrs, last.Addr())
	}
	c, err = locker.Open(t.Context(), "redlock://"+strings.Join(addrs, ",")+
		"?driver=rediss&tls_ca="+last.CAFile+"&tls_cert="+last.CertFile+"&tls_key="+last.KeyFile)
	require.NoError(t, err)
	require.ErrorContains(t, c.Mutex("x").TryLock(t.Context()), "certificate")
	require.NoError(t, c.Close())
}

func TestOpen_refuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redlock://":                                                "at least 3 nodes, and got 0",
		"redlock://h1,h2":                                           "at least 3 nodes, and got 2",
		"redlock://h1,h2,h1:6379":                                   "nodes 1 and 3 are the same, h1:6379",
		"redlock://h1,h2,h3?node_timeout=0s":                        "node_timeout",
		"redlock://h1,h2,h3?node_timeout=x":                         "node_timeout",
		"redlock://h1,h2,h3?node_timeout=5s&ttl=10s":                "2 × 5s",
		"redlock://h1,h2,h3?colour=red":                             `redlock:// does not know the parameter "colour"`,
		"redlock://h1,h2,h3/database":                               "node 1 of 3",
		"redlock://u:secret@h1,h2,h3?driver=mem":                    "node 1 of 3",
		"redlock://u:secret@h1,h2,h3?driver=nosuch":                 `unknown scheme "nosuch"`,
		"redlock://u:secret@h1,h2,h3?driver=redlock":                "driver=redlock",
		"redlock://u:secret@h1,h2,h3?cluster=true":                  "node 1 of 3, by driver=redis: it is not one server",
		"redlock://h1,h2,h3?master_name=m&sentinel_password=secret": "not one server",
		"redlock://h1,h2,h3?master_name=m&driver=redigo":            "not one server",
		"redlock://h1,h2,h3?socket=/run/redis.sock":                 "place of a host",
		"redlock://u:secret@h1,h2,h3?pool_size=0":                   "pool_size",
		"redlock://u:secret@h1,h2,h3?ttl=1500us":                    "",
		"redlock://u:secret@h1,h2,h3?require=fencing":               "nodes keep their data",
		"redlock://u:secret@h1,h2,h3?tls_ca=/nowhere":               "tls_ca",
		"redlock://u:secret@h1,h2,h3?driver=rediss&tls_ca=/nowhere": "tls_ca",
	} {
		_, err := locker.Open(t.Context(), url)
		require.ErrorContains(t, err, want, url)
		assert.NotContains(t, err.Error(), "secret")
		assert.Equal(t, 1, strings.Count(err.Error(), "locker: "), err.Error())
	}
}
