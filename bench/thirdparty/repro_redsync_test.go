package thirdparty

import (
	"context"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

func redsyncAt(t *testing.T, addrs ...string) *redsync.Redsync {
	t.Helper()
	pools := make([]redsyncpool.Pool, len(addrs))
	for i, addr := range addrs {
		pools[i] = redsyncredis.NewPool(dialRedis(t, addr))
	}
	return redsync.New(pools...)
}

// warm has there be connections, and scripts in the server's cache.
func warm(t *testing.T, rs *redsync.Redsync) {
	t.Helper()
	m := rs.NewMutex("warm")
	require.NoError(t, m.Lock())
	_, err := m.Unlock()
	require.NoError(t, err)
}

func TestRepro_redsync_noFencingToken(t *testing.T) {
	rs := redsyncAt(t, startRedis(t).Addr())
	var values []string
	for range 20 {
		m := rs.NewMutex("a")
		require.NoError(t, m.Lock())
		values = append(values, m.Value())
		_, err := m.Unlock()
		require.NoError(t, err)
	}
	unordered(t, values)
}

func TestRepro_redsync_takesAnyName(t *testing.T) {
	rs := redsyncAt(t, startRedis(t).Addr())
	for _, name := range []string{"", "\xff"} {
		assert.NoError(t, rs.NewMutex(name).Lock(), "%q", name)
	}
}

func TestRepro_redsync_interruptedLockSaysOnlyFailed(t *testing.T) {
	rs := redsyncAt(t, startRedis(t).Addr())
	require.NoError(t, rs.NewMutex("a").Lock())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	err := rs.NewMutex("a").LockContext(ctx)
	require.Error(t, ctx.Err())
	assert.Equal(t, redsync.ErrFailed, err)
}

func TestRepro_redsync_cleansUpOnTheCallersContext(t *testing.T) {
	server := startRedis(t)
	proxy := testserver.NewProxy(t, server.Addr())
	rs := redsyncAt(t, proxy.Addr())
	warm(t, rs)
	proxy.HoldReplies(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	m := rs.NewMutex("a", redsync.WithExpiry(time.Minute)) // of which 3 s are for an attempt
	require.Error(t, m.LockContext(ctx))
	proxy.ReleaseReplies()
	time.Sleep(soon) // for a clean-up
	assert.True(t, server.has(t, "a"), "the key of a Lock that failed")
}

func TestRepro_redsync_callsOutlastTheExpiry(t *testing.T) {
	server := startRedis(t)
	rs := redsyncAt(t, server.Addr())
	toUnlock, toExtend := rs.NewMutex("a", redsync.WithExpiry(soon)), rs.NewMutex("b", redsync.WithExpiry(soon))
	require.NoError(t, toUnlock.Lock())
	require.NoError(t, toExtend.Lock())
	server.Stop()
	unlocked := start(func() error { _, err := toUnlock.Unlock(); return err })
	extended := start(func() error { _, err := toExtend.Extend(); return err })
	pending(t, "Unlock", unlocked, 4*soon)
	pending(t, "Extend", extended, 0)
	server.Continue()
	_ = result(t, "Unlock", unlocked)
	_ = result(t, "Extend", extended)
}

func TestRepro_redsync_renewsNothing(t *testing.T) {
	rs := redsyncAt(t, startRedis(t).Addr())
	require.NoError(t, rs.NewMutex("a", redsync.WithExpiry(soon), redsync.WithTimeoutFactor(0.5)).Lock())
	await(t, "another has the lock", func() bool { return rs.NewMutex("a").TryLock() == nil })
}

func TestRepro_redsync_lostReplySaysTaken(t *testing.T) {
	server := startRedis(t)
	proxy := testserver.NewProxy(t, server.Addr())
	rs := redsyncAt(t, proxy.Addr())
	warm(t, rs)
	proxy.HoldReplies(true)
	locked := start(rs.NewMutex("a", redsync.WithExpiry(time.Minute), redsync.WithTimeoutFactor(0.5)).TryLock)
	await(t, "SET is applied", func() bool { return server.has(t, "a") })
	proxy.HoldReplies(false)
	proxy.ResetConns() // the client asks again
	var taken *redsync.ErrTaken
	assert.ErrorAs(t, result(t, "TryLock", locked), &taken)
}

func TestRepro_redsync_failedAttemptsSendReleases(t *testing.T) {
	server := startRedis(t)
	rs := redsyncAt(t, server.Addr())
	warm(t, rs)
	require.NoError(t, rs.NewMutex("a").Lock())
	server.forget(t)
	for range 10 {
		require.Error(t, rs.NewMutex("a").TryLock())
	}
	assert.Equal(t, 10, server.calls(t, "set"))
	assert.Equal(t, 10, server.calls(t, "evalsha"))
}

func TestRepro_redsync_stoppedNodeDelaysUnlock(t *testing.T) {
	nodes := []redisNode{startRedis(t), startRedis(t), startRedis(t)}
	addrs := []string{nodes[0].Addr(), nodes[1].Addr(), nodes[2].Addr()}
	const expiry = 30 * time.Second
	rs := redsyncAt(t, addrs...)
	toUnlock, toExtend := rs.NewMutex("a", redsync.WithExpiry(expiry)), rs.NewMutex("b", redsync.WithExpiry(expiry))
	require.NoError(t, toUnlock.Lock())
	require.NoError(t, toExtend.Lock())
	// A client as it is by default does not heed the ctx of Lock's attempts either.
	pools := make([]redsyncpool.Pool, len(addrs))
	for i, addr := range addrs {
		rdb := goredis.NewClient(&goredis.Options{Addr: addr})
		t.Cleanup(func() { _ = rdb.Close() })
		pools[i] = redsyncredis.NewPool(rdb)
	}
	toLock := redsync.New(pools...).NewMutex("c", redsync.WithExpiry(expiry))

	nodes[2].Stop()
	unlocked := start(func() error { _, err := toUnlock.Unlock(); return err })
	extended := start(func() error { _, err := toExtend.Extend(); return err })
	locked := start(toLock.Lock)
	pending(t, "Unlock", unlocked, 3*time.Second)
	pending(t, "Extend", extended, 0)
	pending(t, "Lock", locked, 0)
	nodes[2].Continue()
	for call, done := range map[string]<-chan error{"Unlock": unlocked, "Extend": extended, "Lock": locked} {
		_ = result(t, call, done)
	}
}

func TestRepro_redsync_lateSetOutlivesUnlock(t *testing.T) {
	a, b, c := startRedis(t), startRedis(t), startRedis(t)
	proxy := testserver.NewProxy(t, c.Addr())
	rs := redsyncAt(t, a.Addr(), b.Addr(), proxy.Addr())
	warm(t, rs)
	m := rs.NewMutex("a", redsync.WithExpiry(time.Minute), redsync.WithTimeoutFactor(0.01))
	proxy.HoldRequests(true)
	require.NoError(t, m.Lock())
	proxy.HoldRequests(false) // for new connections; what was sent before arrives later
	_, err := m.Unlock()
	require.NoError(t, err)
	require.False(t, c.has(t, "a"))
	proxy.ReleaseRequests()
	await(t, "the key is back", func() bool { return c.has(t, "a") })
	left, err := c.direct.PTTL(t.Context(), "a").Result()
	require.NoError(t, err)
	assert.Greater(t, left, 30*time.Second)
}
