package redigo_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/testserver"
)

// harness is for URLs that end with parameters.
func harness(url string) conformance.Harness {
	client := func(t conformance.TB, ttl time.Duration, renew bool) *locker.Client {
		c, err := locker.Open(t.Context(), fmt.Sprintf("%s&ttl=%v&renew=%t", url, ttl, renew))
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return conformance.Harness{
		TTL: 300 * time.Millisecond,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return client(t, ttl, false).Mutex(name)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			c := client(t, ttl, renew)
			return func(name string) locker.Locker { return c.Mutex(name) }
		},
	}
}

func TestConformance(t *testing.T) {
	server := testserver.Redis(t)
	h := harness("redigo://" + server.Addr() + "?pool_size=3")
	h.Faults.StopServer = func(conformance.TB) (resume func()) {
		server.Stop()
		return server.Continue
	}
	conformance.Run(t, h)
}

func TestConformance_sentinel(t *testing.T) {
	conformance.Run(t, harness(sentinelURL(testserver.Sentinel(t))))
}

// sentinelURL ends with parameters.
func sentinelURL(g *testserver.SentinelGroup) string {
	return "redigo://" + strings.Join(g.Addrs(), ",") + "/0?master_name=" + g.MasterName()
}
