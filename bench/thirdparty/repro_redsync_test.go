package thirdparty

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
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

func TestRepro_redsync_cleansUpOnTheCallersContext(t *testing.T) {
	server, proxy := startProxied(t)
	rs := redsyncAt(t, proxy.Addr())
	warm(t, rs)
	proxy.HoldReplies(true)
	ctx := testwait.Context(t, time.Second)
	m := rs.NewMutex("a", redsync.WithExpiry(time.Minute)) // of which 3 s are for an attempt
	require.Error(t, m.LockContext(ctx))
	proxy.ReleaseReplies()
	time.Sleep(soon) // for a clean-up
	assert.True(t, server.has(t, "a"), "the key of a Lock that failed")
}

func TestRepro_redsync_lostReplySaysTaken(t *testing.T) {
	server, proxy := startProxied(t)
	rs := redsyncAt(t, proxy.Addr())
	warm(t, rs)
	proxy.HoldReplies(true)
	locked := testwait.Go(rs.NewMutex("a", redsync.WithExpiry(time.Minute), redsync.WithTimeoutFactor(0.5)).TryLock)
	patience.Until(t, "SET is applied", func() bool { return server.has(t, "a") })
	proxy.HoldReplies(false)
	proxy.ResetConns() // the client asks again
	var taken *redsync.ErrTaken
	assert.ErrorAs(t, patience.Result(t, locked), &taken)
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
	var pools []redsyncpool.Pool
	for _, addr := range addrs {
		rdb := goredis.NewClient(&goredis.Options{Addr: addr})
		t.Cleanup(func() { _ = rdb.Close() })
		pools = append(pools, redsyncredis.NewPool(rdb))
	}
	nodes[2].Stop()
	calls := []<-chan error{
		testwait.Go(func() error { _, err := toUnlock.Unlock(); return err }),
		testwait.Go(func() error { _, err := toExtend.Extend(); return err }),
		testwait.Go(redsync.New(pools...).NewMutex("c", redsync.WithExpiry(expiry)).Lock),
	}
	time.Sleep(3 * time.Second)
	for _, call := range calls {
		assert.Empty(t, call, "it has returned")
	}
	nodes[2].Continue()
	for _, call := range calls {
		_ = patience.Result(t, call)
	}
}

func TestRepro_redsync_lateSetOutlivesUnlock(t *testing.T) {
	a, b := startRedis(t), startRedis(t)
	c, proxy := startProxied(t)
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
	patience.Until(t, "the key is back", func() bool { return c.has(t, "a") })
	left, err := c.direct.PTTL(t.Context(), "a").Result()
	require.NoError(t, err)
	assert.Greater(t, left, 30*time.Second)
}

func redislockAt(t *testing.T, addr string) *redislock.Client {
	t.Helper()
	c := redislock.New(dialRedis(t, addr))
	l, err := c.Obtain(t.Context(), "warm", time.Minute, nil) // there is a connection, and the scripts are known
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	return c
}

func TestRepro_redislock_interruptedObtainLeavesItsKey(t *testing.T) {
	server, proxy := startProxied(t)
	c := redislockAt(t, proxy.Addr())
	proxy.HoldReplies(true)
	ctx := testwait.Context(t, time.Second)
	_, err := c.Obtain(ctx, "a", time.Minute, nil)
	require.Error(t, err)
	proxy.ReleaseReplies()
	time.Sleep(soon) // for a clean-up
	assert.True(t, server.has(t, "a"), "the key of an Obtain that failed")
}

func TestRepro_redislock_lostReplySaysNotHeld(t *testing.T) {
	server, proxy := startProxied(t)
	c := redislockAt(t, proxy.Addr())
	l, err := c.Obtain(t.Context(), "a", time.Minute, nil)
	require.NoError(t, err)
	proxy.HoldReplies(true)
	released := testwait.Go(func() error { return l.Release(t.Context()) })
	patience.Until(t, "the release is applied", func() bool { return !server.has(t, "a") })
	proxy.HoldReplies(false)
	proxy.ResetConns() // the client asks again
	assert.ErrorIs(t, patience.Result(t, released), redislock.ErrLockNotHeld)
}

func TestRepro_redislock_givesUpAfterOneTTL(t *testing.T) {
	c := redislockAt(t, startRedis(t).Addr())
	_, err := c.Obtain(t.Context(), "a", time.Minute, nil)
	require.NoError(t, err)
	_, err = c.Obtain(t.Context(), "a", soon, nil)
	require.ErrorIs(t, err, redislock.ErrNotObtained)
	_, err = c.Obtain(t.Context(), "a", soon, &redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NoError(t, t.Context().Err(), "the ctx that Obtain was given")
}

func TestRepro_redislock_waitersInLockstep(t *testing.T) {
	server := startRedis(t)
	c := redislockAt(t, server.Addr())
	const waiters, holds, backoff = 6, 40 * time.Millisecond, 200 * time.Millisecond
	const inStep = waiters * (waiters + 1) / 2 // attempts: all ask at once, all but one, all but two
	attempts := 0
	for i := 0; i < 5 && attempts < inStep; i++ { // a busy machine puts them out of step
		first, err := c.Obtain(t.Context(), "a", time.Minute, nil)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				l, err := c.Obtain(t.Context(), "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(backoff)})
				if assert.NoError(t, err) {
					time.Sleep(holds)
					assert.NoError(t, l.Release(t.Context()))
				}
			})
		}
		time.Sleep(backoff / 2)
		require.NoError(t, first.Release(t.Context()))
		server.forget(t)
		wg.Wait()
		attempts = server.calls(t, "evalsha") - waiters // releases
	}
	assert.GreaterOrEqual(t, attempts, inStep)
}
