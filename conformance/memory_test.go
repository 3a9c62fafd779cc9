package conformance_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	_ "github.com/go-locker/locker/memory"
)

const memoryTTL = 300 * time.Millisecond

var spaces atomic.Int64

// space names a memory backend that nobody else uses.
func space() string { return fmt.Sprintf("conformance-%d", spaces.Add(1)) }

// open opens a client of a space, that ends with t.
func open(t conformance.TB, space string, ttl time.Duration, renew bool) *locker.Client {
	c, err := locker.Open(t.Context(), fmt.Sprintf("mem://%s?ttl=%s&renew=%t", space, ttl, renew))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// memory is the harness of a memory backend.
func memory() conformance.Harness {
	in := space()
	return conformance.Harness{
		TTL: memoryTTL,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return open(t, in, ttl, false).Mutex(name)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			c := open(t, in, ttl, renew)
			return func(name string) locker.Locker { return c.Mutex(name) }
		},
		RW: func(t conformance.TB, name string, ttl time.Duration) conformance.RWLocker {
			return open(t, in, ttl, false).RWMutex(name)
		},
	}
}

func TestMemory(t *testing.T) {
	t.Cleanup(conformance.Doubts(0))
	conformance.Run(t, memory())
}
