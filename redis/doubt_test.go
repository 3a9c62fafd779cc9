package redis_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// A release that a server refuses has not been tried: where it goes next, a failover may have forgotten the
// hold, and another may have come since. Its arrival there must not pass for the second one of a release that was
// done.
func TestRelease_thatWasRefusedBeforeIsNoSecondTry(t *testing.T) {
	t.Parallel()
	forgotten := func(t *testing.T, on *testserver.RedisServer, token uint64) {
		t.Helper()
		require.NoError(t, connect(t, on.Addr()).HSet(t.Context(), keyOf("x"),
			"owner", "another", "token", token+1, "lapsed", token-1).Err())
	}
	t.Run("sent on by a Cluster", func(t *testing.T) {
		c := testserver.Cluster(t, testserver.RedisReplicas(0))
		rdb := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.Addrs()})
		defer func() { _ = rdb.Close() }()
		lease := take(t, driverOf(t, rdb), "locker:x", time.Minute)
		to := c.OtherPrimary(keyOf("x"))
		c.MoveSlot(keyOf("x"), to)
		forgotten(t, to, lease.Token())
		require.ErrorIs(t, lease.Release(t.Context()), locker.ErrLost)
	})
	t.Run("refused by who is no longer the primary", func(t *testing.T) {
		before, after := testserver.Redis(t), testserver.Redis(t)
		var addr atomic.Value
		addr.Store(before.Addr())
		rdb := connect(t, "", func(o *goredis.Options) {
			o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, network, addr.Load().(string))
			}
		})
		lease := take(t, driverOf(t, rdb), "locker:x", time.Minute)
		forgotten(t, after, lease.Token())
		addr.Store(after.Addr())
		// A replica of nobody: it keeps its data, and takes no writes.
		require.NoError(t, connect(t, before.Addr()).Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
		err := lease.Release(t.Context())
		if err != nil && !errors.Is(err, locker.ErrLost) {
			err = lease.Release(t.Context()) // as the core does
		}
		require.ErrorIs(t, err, locker.ErrLost)
	})
}
