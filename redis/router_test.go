package redis_test

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

// A proxy to several servers routes a script by its first key, or refuses one with keys of several
// servers: whatever shares a batch, each lock is on its own.
func TestRouter_eachNameIsLockedWhereEverybodyLooksForIt(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict: %v", strict), func(t *testing.T) {
			t.Parallel()
			router := testserver.NewRedisRouter(t, strict, testserver.Redis(t), testserver.Redis(t))
			const ttl = 3 * time.Second
			c, other := newClient(t, router.Addr(), locker.WithTTL(ttl)), newClient(t, router.Addr())
			held, errs := make([]*locker.Hold, 64), make([]error, 64)
			var taking sync.WaitGroup
			for i := range held {
				taking.Go(func() { held[i], errs[i] = c.Mutex(fmt.Sprint(i)).TryAcquire(t.Context()) })
			}
			taking.Wait()
			require.NoError(t, errors.Join(errs...))
			start := time.Now()
			allHeld := func() {
				for i := range held {
					require.ErrorIs(t, other.Mutex(fmt.Sprint(i)).TryLock(t.Context()), locker.ErrHeld)
				}
			}
			allHeld()
			for _, h := range held {
				eventually(t, "it is renewed until its first TTL is over, and the second", func() bool {
					return fired(h.Lost()) || h.Deadline().After(start.Add(2*ttl))
				})
				assert.False(t, fired(h.Lost()))
			}
			allHeld()
			for i, h := range held {
				assert.NoError(t, h.Unlock(t.Context()), "lock %d", i)
			}
		})
	}
}
