package redlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redigo"
	"github.com/go-locker/locker/redis"
	"github.com/go-locker/locker/redlock"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis prints what the tests break on purpose
	harness.Serve()
	// It ends within a second after its client was closed, which may be longer than goleak waits.
	dialing := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	goleak.VerifyTestMain(testserver.Tests(m), dialing)
}

// quorum is some servers.
type quorum []*testserver.RedisServer

func newQuorum(t testing.TB, n int, opts ...testserver.RedisOption) (q quorum) {
	t.Helper()
	for range n {
		q = append(q, testserver.Redis(t, opts...))
	}
	return q
}

func (q quorum) each(do func(*testserver.RedisServer)) {
	for _, s := range q {
		do(s)
	}
}

func (q quorum) addrs() (addrs []string) {
	q.each(func(s *testserver.RedisServer) { addrs = append(addrs, s.Addr()) })
	return addrs
}

// url is "redlock://", a user, the servers, and what follows.
func (q quorum) url(user, rest string) string {
	return "redlock://" + user + strings.Join(q.addrs(), ",") + rest
}

// openURL opens a Client, which is closed when the test ends.
func openURL(t testing.TB, url string) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url)
	require.NoError(t, err, url)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestNodes_ofBothAdapters(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	var nodes []driver.Driver
	for i, addr := range q.addrs() {
		rdb := goredis.NewClient(&goredis.Options{Addr: addr, DialerRetries: 1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = rdb.Close() })
		node, err := redis.NewDriver(rdb)
		if i == 1 {
			pool := &redigolib.Pool{DialContext: func(ctx context.Context) (redigolib.Conn, error) {
				return redigolib.DialContext(ctx, "tcp", addr)
			}}
			t.Cleanup(func() { _ = pool.Close() })
			node, err = redigo.NewDriver(pool)
		}
		require.NoError(t, err)
		nodes = append(nodes, node)
	}
	mixed := testwait.Closed(redlock.New(nodes))(t)
	a, b := mixed.Mutex("x"), openURL(t, q.url("", "?node_timeout=2s")).Mutex("x")
	var last uint64
	for range 3 {
		for _, m := range []*locker.Mutex{a, b} {
			require.NoError(t, m.Lock(t.Context()))
			assert.Greater(t, m.FencingToken(), last)
			last = m.FencingToken()
			require.NoError(t, m.Extend(t.Context()))
			require.ErrorIs(t, map[*locker.Mutex]*locker.Mutex{a: b, b: a}[m].TryLock(t.Context()), locker.ErrHeld)
			require.NoError(t, m.Unlock(t.Context()))
		}
	}
	// The one that go-redis reaches is down: the other two are one of each.
	q[0].Kill()
	require.NoError(t, a.Lock(t.Context()))
	require.NoError(t, a.Unlock(t.Context()))
}

// Two names of one server are two votes of it: a majority of three would be one server. A server
// tells who it is by INFO. Where the user has no right to that, nothing is noticed, and the lock is
// worth no more than one server.
func TestNodes_thatAreOneServerAreRefused(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 2, testserver.RedisConfig("user blind on >secret ~* &* +@all -info"))
	addrs := q.addrs()
	localhost := strings.Replace(addrs[0], "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		user, nodes string
		refused     bool
	}{
		{"", strings.Join([]string{addrs[0], localhost, addrs[1]}, ","), true},
		{"", strings.Join([]string{addrs[0], addrs[1], testserver.NewProxy(t, addrs[1]).Addr()}, ","), true},
		{"blind:secret@", strings.Join([]string{addrs[0], localhost, addrs[1]}, ","), false},
	} {
		client := openURL(t, "redlock://"+c.user+c.nodes+"?node_timeout=2s")
		for _, lock := range []func(context.Context) error{client.Mutex("x").TryLock, client.Mutex("y").Lock} {
			err := lock(t.Context())
			if !c.refused {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, locker.ErrUnsupported, c.nodes)
			require.ErrorContains(t, err, "are one server")
		}
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	harness.Inspect(t, harness.Inspection{
		URL: q.url("", "?node_timeout=400ms"), TTL: 3 * time.Second,
		Left: true, Since: true, LastToken: true, TokenWhenWaited: true,
		Stop: func() func() {
			q.each((*testserver.RedisServer).Stop)
			return func() { q.each((*testserver.RedisServer).Continue) }
		},
		Kill: func() { q.each((*testserver.RedisServer).Kill) },
	})
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	harness.Abandon(t, newQuorum(t, 3).url("", "?node_timeout=400ms"), 3*time.Second)
}

func TestOpen(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	for _, query := range []string{
		"", "?driver=redis", "?driver=redigo", "?node_timeout=200ms&ttl=5s&prefix=app", "?read_timeout=1s",
	} {
		m := openURL(t, q.url("", "/1"+query)).Mutex("x")
		require.NoError(t, m.Lock(t.Context()), query)
		q.each(func(s *testserver.RedisServer) {
			assert.EqualValues(t, 0, s.Do("DBSIZE"), "database 1 it is")
		})
		require.NoError(t, m.Unlock(t.Context()))
	}
}

func TestOpen_withAPassword(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, testserver.RedisConfig("user u on >p@ss ~* +@all"))
	require.NoError(t, openURL(t, q.url("u:p%40ss@", "")).Mutex("x").Lock(t.Context()))
	for _, scheme := range []string{"redis", "redigo"} {
		err := openURL(t, q.url("u:wr%40ng@", "?driver="+scheme)).Mutex("x").TryLock(t.Context())
		for _, addr := range q.addrs() {
			require.ErrorContains(t, err, addr)
		}
		require.ErrorContains(t, err, "WRONGPASS")
		assert.NotContains(t, err.Error(), "wr", "no secret is in it")
	}
}

func TestOpen_refuses(t *testing.T) {
	t.Parallel()
	harness.RefusesURLs(t, map[string]string{
		"redlock://":                                                "at least 3 nodes, and got 0",
		"redlock://h1,h2":                                           "at least 3 nodes, and got 2",
		"redlock://h1,h2,h1:6379":                                   "nodes 1 and 3 are the same, h1:6379",
		"redlock://h1,h2,h3?node_timeout=0s":                        "node_timeout",
		"redlock://h1,h2,h3?node_timeout=x":                         "node_timeout",
		"redlock://h1,h2,h3?node_timeout=5s&ttl=10s":                "2 × 5s",
		"redlock://h1,h2,h3?colour=red":                             `redlock:// does not know the parameter "colour"`,
		"redlock://h1,h2,h3/database":                               "node 1 of 3",
		"redlock://u:s3cret@h1,h2,h3?driver=mem":                    "node 1 of 3",
		"redlock://u:s3cret@h1,h2,h3?driver=nosuch":                 `unknown scheme "nosuch"`,
		"redlock://u:s3cret@h1,h2,h3?driver=redlock":                "driver=redlock",
		"redlock://u:s3cret@h1,h2,h3?cluster=true":                  "node 1 of 3, by driver=redis: it is not one server",
		"redlock://h1,h2,h3?master_name=m&sentinel_password=s3cret": "not one server",
		"redlock://h1,h2,h3?master_name=m&driver=redigo":            "not one server",
		"redlock://h1,h2,h3?socket=/run/redis.sock":                 "place of a host",
		"redlock://u:s3cret@h1,h2,h3?pool_size=0":                   "pool_size",
		"redlock://u:s3cret@h1,h2,h3?ttl=1500us":                    "",
		"redlock://u:s3cret@h1,h2,h3?require=fencing":               "nodes keep their data",
		"redlock://u:s3cret@h1,h2,h3?tls_ca=/nowhere":               "tls_ca",
		"redlock://u:s3cret@h1,h2,h3?driver=rediss&tls_ca=/nowhere": "tls_ca",
	})
}
