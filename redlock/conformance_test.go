package redlock_test

import (
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// The suite on three real servers, each Locker on clients and connections of its own.
func TestConformance(t *testing.T) {
	q := newQuorum(t, 3)
	client := func(t conformance.TB, ttl time.Duration, opts ...locker.Option) *locker.Client {
		c, closeAll, err := open(q.addrs(), append(opts, locker.WithTTL(ttl))...)
		if err != nil {
			t.Fatalf("new: %v", err)
		}
		t.Cleanup(closeAll)
		return c
	}
	conformance.Run(t, conformance.Harness{
		TTL: 500 * time.Millisecond,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return client(t, ttl, locker.WithoutRenewal()).Mutex(name)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			var opts []locker.Option
			if !renew {
				opts = append(opts, locker.WithoutRenewal())
			}
			c := client(t, ttl, opts...)
			return func(name string) locker.Locker { return c.Mutex(name) }
		},
		Faults: conformance.Faults{
			StopServer: func(conformance.TB) (resume func()) {
				for _, s := range q.servers {
					s.Stop()
				}
				return func() {
					for _, s := range q.servers {
						s.Continue()
					}
				}
			},
		},
	})
}
