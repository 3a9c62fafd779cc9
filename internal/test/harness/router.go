package harness

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// RedisRouter tests that behind a proxy to several servers each lock is on its own, whatever shares a batch with it: if the proxy
// routes a script by its first key, and if it refuses one with keys of several servers. client makes a Client of an address.
func RedisRouter(t *testing.T, client func(addr string, opts ...locker.Option) *locker.Client) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict: %v", strict), func(t *testing.T) {
			t.Parallel()
			router := testserver.NewRedisRouter(t, strict, testserver.Redis(t), testserver.Redis(t))
			const ttl = 3 * time.Second
			c, other := client(router.Addr(), locker.WithTTL(ttl)), client(router.Addr())
			held := takeAtOnce(t, c, 64)
			start := time.Now()
			wantHeld(t, other, len(held))
			lost := 0
			for _, h := range held {
				patience.Until(t, "it is renewed until its first TTL is over, and the second", func() bool {
					return isLost(h) || h.Deadline().After(start.Add(2*ttl))
				})
				if isLost(h) {
					lost++
				}
			}
			require.Zero(t, lost, "of %d healthy holds are reported lost", len(held))
			wantHeld(t, other, len(held))
			for i, h := range held {
				assert.NoError(t, h.Unlock(t.Context()), "lock %d", i)
			}
		})
	}
}

// takeAtOnce takes n locks, each in a goroutine of its own.
func takeAtOnce(t *testing.T, c *locker.Client, n int) []*locker.Hold {
	t.Helper()
	held := make([]*locker.Hold, n)
	errs := make([]error, n)
	var taking sync.WaitGroup
	for i := range held {
		taking.Go(func() { held[i], errs[i] = c.Mutex(fmt.Sprint(i)).TryAcquire(t.Context()) })
	}
	taking.Wait()
	require.NoError(t, errors.Join(errs...))
	return held
}

func isLost(h *locker.Hold) bool {
	select {
	case <-h.Lost():
		return true
	default:
		return false
	}
}

// wantHeld has another client ask for the first n names.
func wantHeld(t *testing.T, other *locker.Client, n int) {
	t.Helper()
	granted := 0
	for i := range n {
		m := other.Mutex(fmt.Sprint(i))
		if err := m.TryLock(t.Context()); err == nil {
			granted++
			require.NoError(t, m.Unlock(t.Context()))
		} else {
			require.ErrorIs(t, err, locker.ErrHeld)
		}
	}
	assert.Zero(t, granted, "of %d held locks are granted to another", n)
}
