package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redis"
)

// A reply that is lost has the request sent again, on another connection. There WAIT must not be content
// with what that connection has written before, which is nothing: Redis counts so from 7.2 on.
func TestWaitReplicas_whatIsSentTwiceIsAcknowledgedToo(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...testserver.RedisOption) *testserver.RedisServer{
		"Redis": testserver.Redis, "Valkey": testserver.Valkey,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "Valkey" {
				testwait.OnlyNightly(t, "one server that counts so shows it")
			}
			primary := start(t)
			replica := start(t, testserver.RedisReplicaOf(primary))
			ctx := t.Context()
			direct := connect(t, primary.Addr())
			p := testserver.NewProxy(t, primary.Addr())
			rdb := connect(t, p.Addr(), heedingCtx)
			loadScripts(t, direct)
			d := driverOf(t, rdb, redis.WaitReplicas(1, 100*time.Millisecond))
			_, err := rdb.Pipelined(ctx, func(p goredis.Pipeliner) error { return p.Ping(ctx).Err() })
			require.NoError(t, err, "sets up a connection")
			replica.WaitSynced(primary)
			warmDriver(t, d)
			replica.Stop() // connected still, and silent

			p.HoldReplies(true)
			var lease driver.Lease
			done := async(func() error {
				lease, err = claims.Take(ctx, d, driver.Request{Name: "x", TTL: time.Minute})
				return err
			})
			eventually(t, "the server has granted, and answered", func() bool {
				_, replies := p.Held()
				return replies > 0 && isHeldAt(t, direct, "{x}")
			})
			p.HoldReplies(false) // of other connections
			p.ResetConns()
			require.ErrorContains(t, await(t, done), "0 of 1 replicas")
			require.NotNil(t, lease, "for the core to release")

			// And a raise to the token that it has already.
			replica.Continue()
			require.NoError(t, lease.Release(ctx))
			proposed, err := claims.Propose(ctx, d, driver.Request{Name: "y", TTL: time.Minute}, 7)
			require.NoError(t, err)
			replica.WaitSynced(primary)
			replica.Stop()
			require.ErrorContains(t, proposed.Raise(ctx, proposed.Token()+1), "0 of 1 replicas")
			require.ErrorContains(t, proposed.Raise(ctx, proposed.Token()+1), "0 of 1 replicas")
			replica.Continue()
		})
	}
}
