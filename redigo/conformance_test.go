package redigo_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The suite on real servers, each Locker on connections of its own.
func TestConformance(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) conformance.Harness{"one server": standalone, "Sentinel": sentinel} {
		t.Run(name, func(t *testing.T) {
			if name != "one server" {
				testwait.OnlyNightly(t, "one server shows that the protocol keeps the promises, with all faults that it can have")
			}
			h := start(t)
			h.Deviations = knownbreaks.Redis()
			t.Parallel()
			conformance.Run(t, h)
		})
	}
}

// standalone has all faults but FailOver: there is nobody to take over.
func standalone(t *testing.T) conformance.Harness {
	t.Helper()
	opts := []testserver.RedisOption{testserver.RedisPersistent()}
	if testserver.ShiftsClocks {
		opts = append(opts, testserver.RedisClock())
	}
	servers := []*testserver.RedisServer{testserver.Redis(t, opts...)}
	h := harness.ForURL(300*time.Millisecond, "redigo://%s?pool_size=3", []string{servers[0].Addr()})
	harness.Servers(&h.Faults, servers, servers[0].Restart)
	harness.Clocks(&h.Faults, servers)
	h.Faults.Revoke = harness.RedisRevoke(func(string) *testserver.RedisServer { return servers[0] })
	return h
}

// sentinel has no Through, for a URL has no way around the addresses that sentinels tell, and leaves MoveClock to one server.
func sentinel(t *testing.T) conformance.Harness {
	t.Helper()
	g := testserver.Sentinel(t, testserver.RedisPersistent(), testserver.SentinelConfig("sentinel down-after-milliseconds testmaster 600000"))
	h := harness.ForURL(300*time.Millisecond, "redigo://%s/0?master_name="+g.MasterName(), g.Addrs())
	h.Faults.Through, h.Faults.ThroughClient = nil, nil
	harness.Servers(&h.Faults, g.Servers(), g.Restart)
	h.Faults.FailOver = harness.SentinelFailOver(g)
	h.Faults.Revoke = harness.RedisRevoke(func(string) *testserver.RedisServer { return g.Primary() })
	return h
}

// sentinelURL ends with parameters.
func sentinelURL(g *testserver.SentinelGroup) string {
	return "redigo://" + strings.Join(g.Addrs(), ",") + "/0?master_name=" + g.MasterName()
}
