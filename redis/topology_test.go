package redis_test

import (
	"context"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/testserver"
)

// topology is one server or several, and the URL of them.
type topology struct {
	url     string // with a query
	servers []*testserver.RedisServer
	// admin is a client of whoever holds the name, at the time of the call.
	admin func(t testing.TB, name string) *goredis.Client
}

func single(t testing.TB, s *testserver.RedisServer) topology {
	t.Helper()
	return topology{
		url: s.URL() + "?prefix=locker", servers: []*testserver.RedisServer{s},
		admin: func(t testing.TB, _ string) *goredis.Client { t.Helper(); return connect(t, s.Addr()) },
	}
}

func sentinelURL(g *testserver.SentinelGroup) string {
	return "redis://" + strings.Join(g.Addrs(), ",") + "?master_name=" + g.MasterName()
}

func clusterURL(c *testserver.RedisCluster) string {
	return "redis://" + strings.Join(c.Addrs(), ",") + "?cluster=true"
}

// topologies are what the adapter is for. Nothing fails over by itself: see the tests of failover.
var topologies = map[string]func(t testing.TB) topology{
	"one server": func(t testing.TB) topology { t.Helper(); return single(t, testserver.Redis(t)) },
	"Valkey":     func(t testing.TB) topology { t.Helper(); return single(t, testserver.Valkey(t)) },
	"Sentinel": func(t testing.TB) topology {
		t.Helper()
		g := testserver.Sentinel(t, testserver.SentinelConfig("sentinel down-after-milliseconds testmaster 600000"))
		return topology{
			url: sentinelURL(g), servers: g.Servers(),
			admin: func(t testing.TB, _ string) *goredis.Client { t.Helper(); return connect(t, g.Primary().Addr()) },
		}
	},
	"Cluster": func(t testing.TB) topology {
		t.Helper()
		c := testserver.Cluster(t, testserver.RedisArgs("--cluster-node-timeout", "600000"))
		return topology{
			url: clusterURL(c), servers: c.Servers(),
			admin: func(t testing.TB, name string) *goredis.Client {
				t.Helper()
				return connect(t, c.PrimaryOf(keyOf(name)).Addr())
			},
		}
	},
}

// openURL opens a Client, and closes it when the test ends.
func openURL(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.Open(context.WithoutCancel(t.Context()), url, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
