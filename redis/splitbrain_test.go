package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// A network is cut between two primaries: one that was replaced and has not heard of it, and the replica that took its
// place. Each side has clients that reach it, and both sides grant the lock: for as long as the cut lasts, not for one
// TTL. It makes no difference that each grant is acknowledged by a replica, if one is on the old side. And the tokens
// are those of two clocks: who holds on the old side may well have the larger one. A resource that compares them still
// loses no write in silence, but whose it refuses is a matter of who came last.
func TestSplitBrain_bothPrimariesGrantTheLock(t *testing.T) {
	t.Parallel()
	for name, acknowledge := range map[string]int{"asynchronously": 0, "acknowledged by a replica": 1} {
		t.Run(name, func(t *testing.T) {
			old, replicas := replicated(t, 2)
			ctx := t.Context()
			holder := func(s *testserver.RedisServer, n int) *locker.Mutex {
				rdb := connect(t, s.Addr())
				if n == 0 {
					return clientOf(t, rdb, locker.WithTTL(time.Minute), locker.WithoutRenewal()).Mutex("x")
				}
				return waiting(t, rdb, n, 2*time.Second, locker.WithTTL(time.Minute), locker.WithoutRenewal()).Mutex("x")
			}
			for _, r := range replicas {
				r.WaitSynced(old)
			}
			taken := replicas[1]
			taken.Detach() // the cut: the other replica stays with the old primary
			taken.Promote()

			here, there := holder(old, acknowledge), holder(taken, 0)
			var last uint64
			for range 3 { // and again, as often as anybody likes
				require.NoError(t, there.Lock(ctx))
				require.NoError(t, here.Lock(ctx))
				assert.NotZero(t, there.FencingToken())
				assert.Greater(t, here.FencingToken(), there.FencingToken(), "the one that came last has the larger token, though its primary is none")
				assert.Greater(t, there.FencingToken(), last)
				last = here.FencingToken()
				require.NoError(t, there.Extend(ctx), "nobody is told")
				require.NoError(t, here.Extend(ctx))
				require.NoError(t, there.Unlock(ctx))
				require.NoError(t, here.Unlock(ctx))
			}
		})
	}
}
