package thirdparty

import (
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis/rueidislock"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestRedsync(t *testing.T) { conformRedsync(t, 1) }

func TestRedsync_threeNodes(t *testing.T) { conformRedsync(t, 3) }

func conformRedsync(t *testing.T, nodes int) {
	t.Helper()
	servers := make([]*testserver.RedisServer, nodes)
	for i := range servers {
		servers[i] = testserver.Redis(t, testserver.RedisPersistent())
	}
	open := func(t conformance.TB, via func(string) string) *redsync.Redsync {
		pools := make([]redsyncpool.Pool, nodes)
		for i, s := range servers {
			pools[i] = redsyncredis.NewPool(dialRedis(t, via(s.Addr())))
		}
		return redsync.New(pools...)
	}
	run(t, conformance.Harness{
		TTL: 400 * time.Millisecond,
		Client: func(t conformance.TB, ttl time.Duration, _ bool) func(string) locker.Locker {
			rs := open(t, straight)
			return func(name string) locker.Locker { return newRedsync(rs, name, ttl) }
		},
	}, func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return newRedsync(open(t, via), name, ttl)
	}, servers...)
}

func TestRedislock(t *testing.T) {
	server := testserver.Redis(t, testserver.RedisPersistent())
	open := func(t conformance.TB, via func(string) string) *redislock.Client {
		return redislock.New(dialRedis(t, via(server.Addr())))
	}
	run(t, conformance.Harness{
		TTL: 300 * time.Millisecond,
		Client: func(t conformance.TB, ttl time.Duration, _ bool) func(string) locker.Locker {
			c := open(t, straight)
			return func(name string) locker.Locker { return newRedislock(c, name, ttl) }
		},
	}, func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return newRedislock(open(t, via), name, ttl)
	}, server)
}

func TestRueidislock(t *testing.T) {
	server := testserver.Redis(t, testserver.RedisPersistent())
	open := func(t conformance.TB, addr string, ttl time.Duration, renew bool) rueidislock.Locker {
		l, err := dialRueidislock(addr, ttl, renew)
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		t.Cleanup(l.Close)
		return l
	}
	run(t, conformance.Harness{
		TTL: 300 * time.Millisecond,
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			l := open(t, server.Addr(), ttl, renew)
			return func(name string) locker.Locker { return newRueidislock(l, name) }
		},
	}, func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return newRueidislock(open(t, via(server.Addr()), ttl, false), name)
	}, server)
}

// dialRedis makes a client that heeds ctx, which is off by default.
func dialRedis(t interface{ Cleanup(func()) }, addr string) *goredis.Client {
	rdb := goredis.NewClient(&goredis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
