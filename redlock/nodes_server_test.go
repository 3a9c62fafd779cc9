package redlock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redigo"
	_ "github.com/go-locker/locker/redigo"
	"github.com/go-locker/locker/redis"
	"github.com/go-locker/locker/redlock"
)

func TestNodes_ofBothAdapters(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	mixed := func() *locker.Client {
		var nodes []driver.Driver
		for i, s := range q.servers {
			var n driver.Driver
			var err error
			if i == 1 {
				pool := &redigolib.Pool{DialContext: func(ctx context.Context) (redigolib.Conn, error) {
					return redigolib.DialContext(ctx, "tcp", s.Addr())
				}}
				t.Cleanup(func() { _ = pool.Close() })
				n, err = redigo.NewDriver(pool)
			} else {
				n, err = redis.NewDriver(connect(t, s.Addr()))
			}
			require.NoError(t, err)
			nodes = append(nodes, n)
		}
		c, err := redlock.New(nodes)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b := mixed().Mutex("x"), client(t, q.addrs()).Mutex("x")
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
	q.servers[0].Kill()
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
		client, err := locker.Open(t.Context(), "redlock://"+c.user+c.nodes+"?node_timeout=2s")
		require.NoError(t, err)
		for _, lock := range []func(context.Context) error{client.Mutex("x").TryLock, client.Mutex("y").Lock} {
			err := lock(t.Context())
			if !c.refused {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, locker.ErrUnsupported, c.nodes)
			require.ErrorContains(t, err, "are one server")
		}
		require.NoError(t, client.Close())
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	each := func(do func(*testserver.RedisServer)) {
		for _, s := range q.servers {
			do(s)
		}
	}
	harness.Inspect(t, harness.Inspection{
		URL: "redlock://" + strings.Join(q.addrs(), ",") + "?renew=false&node_timeout=400ms", TTL: 3 * time.Second,
		Left: true, Since: true, LastToken: true, TokenWhenWaited: true,
		Stop: func() func() {
			each((*testserver.RedisServer).Stop)
			return func() { each((*testserver.RedisServer).Continue) }
		},
		Kill: func() { each((*testserver.RedisServer).Kill) },
	})
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	harness.Abandon(t, "redlock://"+strings.Join(newQuorum(t, 3).addrs(), ",")+"?node_timeout=400ms", 3*time.Second)
}

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

// antirez: with an append-only file a node knows its locks after a crash. True after kill -9 even
// with fsync every second: what the server had written is the kernel's. After a power loss it takes
// fsync at every write, as Kleppmann says. The power loss is simulated: the file is put back as it
// was at the last fsync that the setting guarantees, before the take or after its reply.
func TestAntirez_anAppendOnlyFileSavesHoldsFromACrashAndWithFsyncAlwaysFromAPowerLoss(t *testing.T) {
	for name, c := range map[string]struct {
		fsync             string
		powerLoss, forget bool
	}{
		"a crash":                             {"everysec", false, false},
		"a power loss with fsync each second": {"everysec", true, true},
		"a power loss with fsync always":      {"always", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, image := t.TempDir(), filepath.Join(t.TempDir(), "image") // before the server, and so removed after its end
			save := func() { require.NoError(t, os.CopyFS(image, os.DirFS(disk))) }
			s := testserver.Redis(t, testserver.RedisArgs("--dir", disk, "--appendonly", "yes", "--appendfsync", c.fsync))
			node, err := redis.NewDriver(connect(t, s.Addr()))
			require.NoError(t, err)
			defer func() { _ = node.Close() }()
			if c.forget {
				save()
			}
			l, err := claims.Take(t.Context(), node, driver.Request{Name: "x", TTL: time.Hour})
			require.NoError(t, err)
			if !c.forget {
				save()
			}
			s.Kill()
			if c.powerLoss {
				require.NoError(t, os.RemoveAll(disk))
				require.NoError(t, os.CopyFS(disk, os.DirFS(image)))
			}
			s.Restart()
			err = l.Extend(t.Context(), time.Hour)
			assert.Equal(t, c.forget, errors.Is(err, driver.ErrLost), "%v", err)
			assert.Equal(t, c.forget, err != nil, "%v", err)
		})
	}
}
