//go:build unix

package servers_test

import (
	"context"
	"net"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/wire"
	"github.com/go-locker/locker/internal/test/testserver"
)

func start(t *testing.T, n int) (context.Context, context.CancelFunc, *servers.Servers) {
	t.Helper()
	testserver.Need(t, "redis-server")
	logging.Disable() // go-redis prints what the tests break on purpose
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	all, err := servers.Redis(ctx, n)
	require.NoError(t, err)
	t.Cleanup(all.Stop)
	return ctx, cancel, all
}

// ask sets a key, on a connection of its own, and reports whether the server says so within a
// while.
func ask(t *testing.T, s *servers.RedisServer, patience time.Duration) bool {
	t.Helper()
	rdb := goredis.NewClient(&goredis.Options{Addr: s.Addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return rdb.Set(ctx, "k", "v", 0).Err() == nil
}

const short, long = 100 * time.Millisecond, 10 * time.Second

func TestServer_awayAndBack(t *testing.T) {
	ctx, _, all := start(t, 1)
	s := all.Redis[0]
	require.True(t, ask(t, s, long))
	require.NoError(t, s.Freeze(ctx))
	assert.False(t, ask(t, s, short), "frozen")
	require.NoError(t, s.Thaw(ctx))
	assert.True(t, ask(t, s, long), "thawed")

	s.Kill()
	assert.False(t, ask(t, s, short), "killed")
	require.Error(t, s.Freeze(ctx), "nothing is there to be stopped")
	require.NoError(t, s.Restart(ctx))
	keys, err := s.Client.DBSize(ctx).Result()
	require.NoError(t, err)
	assert.Zero(t, keys, "it comes back empty")
	assert.True(t, ask(t, s, long), "restarted")

	require.NoError(t, s.Freeze(ctx))
	all.Stop()
	require.Error(t, s.Restart(ctx), "stopped for good")
}

func TestStart_stopsServersWhenItsContextEnds(t *testing.T) {
	ctx, cancel, all := start(t, 2)
	require.NoError(t, all.Redis[1].Freeze(ctx))
	cancel()
	for _, s := range all.Redis {
		assert.Eventually(t, func() bool {
			conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		}, long, 10*time.Millisecond, "%s still listens", s.Addr)
	}
}

func TestDuring_isOfAllTogether(t *testing.T) {
	ctx, _, all := start(t, 3)
	l, err := all.During(ctx, wire.NewTally(), func() error {
		for _, s := range all.Redis {
			require.True(t, ask(t, s, long))
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, int64(3), l.RunNames["set"])
	assert.NotContains(t, l.RunNames, "info")
	assert.Zero(t, l.Sent, "nobody wrote through the tally")
}
