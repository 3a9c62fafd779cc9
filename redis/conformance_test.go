package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// The suite on real servers, each Locker on a client and connections of its own.
func TestConformance(t *testing.T) {
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			conform(t, start(t))
		})
	}
}

func conform(t *testing.T, top topology) {
	t.Helper()
	client := func(t conformance.TB, ttl time.Duration, renew bool) *locker.Client {
		c, err := locker.Open(t.Context(), fmt.Sprintf("%s&ttl=%v&renew=%t", top.url, ttl, renew))
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	conformance.Run(t, conformance.Harness{
		TTL: 300 * time.Millisecond,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return client(t, ttl, false).Mutex(name)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			c := client(t, ttl, renew)
			return func(name string) locker.Locker { return c.Mutex(name) }
		},
		Faults: conformance.Faults{
			StopServer: func(conformance.TB) (resume func()) {
				for _, s := range top.servers {
					s.Stop()
				}
				return func() {
					for _, s := range top.servers {
						s.Continue()
					}
				}
			},
		},
	})
}
