package redis_test

import (
	"context"
	"maps"
	"net"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redis"
)

// The suite on real servers, each Locker on a client and connections of its own.
func TestConformance(t *testing.T) {
	// They forget nothing that they have answered.
	opts := []testserver.RedisOption{testserver.RedisPersistent()}
	own := opts
	if testserver.ShiftsClocks {
		own = append(own, testserver.RedisClock())
	}
	for name, start := range map[string]func(t *testing.T) conformance.Harness{
		"one server": func(t *testing.T) conformance.Harness { t.Helper(); return standalone(t, testserver.Redis(t, own...)) },
		"Valkey":     func(t *testing.T) conformance.Harness { t.Helper(); return compatible(t, testserver.Valkey(t)) },
		"Sentinel":   func(t *testing.T) conformance.Harness { t.Helper(); return sentinel(t, opts...) },
		"Cluster":    func(t *testing.T) conformance.Harness { t.Helper(); return cluster(t, opts...) },
	} {
		t.Run(name, func(t *testing.T) {
			if name != "one server" {
				testwait.OnlyNightly(t, "one server shows that the protocol keeps the promises, with all faults that it can have")
			}
			h := start(t)
			t.Parallel()
			conformance.Run(t, h)
		})
	}
}

// longer is the TTL where several servers share two processors with the race detector.
const longer = 600 * time.Millisecond

func forURL(t *testing.T, format string, addrs []string) conformance.Harness {
	t.Helper()
	h := harness.ForURL(300*time.Millisecond, format, addrs)
	h.Deviations = knownbreaks.Redis()
	return h
}

// standalone has all faults but FailOver: there is nobody to take over.
func standalone(t *testing.T, s *testserver.RedisServer) conformance.Harness {
	t.Helper()
	servers := []*testserver.RedisServer{s}
	h := forURL(t, "redis://%s?prefix=locker", []string{s.Addr()})
	harness.Servers(&h.Faults, servers, s.Restart)
	harness.Clocks(&h.Faults, servers)
	harness.RedisRefuse(&h.Faults, servers)
	h.Faults.Revoke = harness.RedisRevoke(func(string) *testserver.RedisServer { return s })
	return h
}

// compatible leaves it to standalone what faults do to a server of this protocol.
func compatible(t *testing.T, s *testserver.RedisServer) conformance.Harness {
	t.Helper()
	h := forURL(t, "redis://%s?prefix=locker", []string{s.Addr()})
	h.Faults = conformance.Faults{StopServer: func(conformance.TB) func() { s.Stop(); return s.Continue }}
	return h
}

// sentinel has all faults but MoveClock, which standalone has. Nothing fails over by itself.
func sentinel(t *testing.T, opts ...testserver.RedisOption) conformance.Harness {
	t.Helper()
	g := testserver.Sentinel(t, append(opts, testserver.SentinelConfig("sentinel down-after-milliseconds testmaster 600000"))...)
	h := forURL(t, "redis://%s?master_name="+g.MasterName(), g.Addrs())
	h.TTL = longer
	harness.Servers(&h.Faults, g.Servers(), g.Restart)
	h.Faults.FailOver = harness.SentinelFailOver(g)
	h.Faults.Revoke = harness.RedisRevoke(func(string) *testserver.RedisServer { return g.Primary() })
	addrs := g.Addrs()
	for _, s := range g.Servers() {
		addrs = append(addrs, s.Addr())
	}
	h.Faults.ThroughClient = nil // a URL has no way around the addresses that servers tell
	h.Faults.Through = through(addrs, func(dial dialFunc) goredis.UniversalClient {
		return goredis.NewFailoverClient(&goredis.FailoverOptions{
			MasterName: g.MasterName(), SentinelAddrs: g.Addrs(), Dialer: dial, DialerRetries: 1,
			ContextTimeoutEnabled: true, MaxRetries: 1, ReadTimeout: time.Second,
		})
	})
	return h
}

// cluster has neither MoveClock, for its nodes judge each other by their clocks, nor FailOver: that is of one shard,
// and a fault does not say of which.
func cluster(t *testing.T, opts ...testserver.RedisOption) conformance.Harness {
	t.Helper()
	c := testserver.Cluster(t, append(opts, testserver.RedisConfig("cluster-node-timeout 600000"))...)
	h := forURL(t, "redis://%s?cluster=true", c.Addrs())
	h.TTL = longer
	if !c.Servers()[0].HasShardChannels() {
		h.Promises = maps.Clone(openURL(t, "redis://"+c.Addrs()[0]+"?cluster=true").Guarantees())
		h.Promises[locker.Woken] = locker.Promise{Level: locker.LevelNo, Condition: "before Redis 7 waiters in a Cluster poll"}
		h.Deviations["a waiter has the lock within a few round trips of the Unlock"] = "before Redis 7 waiters in a Cluster poll"
		h.Deviations["a writer that is killed while it waits does not hold up the readers behind it"] = "before Redis 7 waiters in a Cluster poll, and one is passed over after five seconds without a look"
	}
	harness.Servers(&h.Faults, c.Servers(), c.Restart)
	h.Faults.Revoke = harness.RedisRevoke(c.PrimaryOf)
	h.Faults.ThroughClient = nil
	h.Faults.Through = through(c.Addrs(), func(dial dialFunc) goredis.UniversalClient {
		return goredis.NewClusterClient(&goredis.ClusterOptions{
			Addrs: c.Addrs(), Dialer: dial, DialerRetries: 1,
			ContextTimeoutEnabled: true, ReadTimeout: time.Second, ClusterStateReloadInterval: 5 * time.Second,
		})
	})
	return h
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// through is Faults.Through for clients that are told addresses by the servers at addrs.
func through(addrs []string, connect func(dialFunc) goredis.UniversalClient) func(conformance.TB, string, time.Duration, func(string) string) locker.Locker {
	return func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		rdb := connect(harness.Dialer(addrs, via))
		t.Cleanup(func() { _ = rdb.Close() })
		c, err := redis.New(rdb, locker.WithTTL(ttl), locker.WithoutRenewal())
		if err != nil {
			t.Fatalf("new: %v", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c.RWMutex(name)
	}
}
