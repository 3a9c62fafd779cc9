package thirdparty

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

func redislockAt(t *testing.T, addr string) *redislock.Client {
	t.Helper()
	c := redislock.New(dialRedis(t, addr))
	l, err := c.Obtain(t.Context(), "warm", time.Minute, nil) // there is a connection, and the scripts are known
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	return c
}

func TestRepro_redislock_noFencingToken(t *testing.T) {
	c := redislockAt(t, startRedis(t).Addr())
	var tokens []string
	for range 20 {
		l, err := c.Obtain(t.Context(), "a", time.Minute, nil)
		require.NoError(t, err)
		tokens = append(tokens, l.Token())
		require.NoError(t, l.Release(t.Context()))
	}
	unordered(t, tokens)
}

func TestRepro_redislock_takesAnyName(t *testing.T) {
	c := redislockAt(t, startRedis(t).Addr())
	for _, name := range []string{"", "\xff"} {
		_, err := c.Obtain(t.Context(), name, time.Minute, nil)
		assert.NoError(t, err, "%q", name)
	}
}

func TestRepro_redislock_interruptedObtainLeavesItsKey(t *testing.T) {
	server := startRedis(t)
	proxy := testserver.NewProxy(t, server.Addr())
	c := redislockAt(t, proxy.Addr())
	proxy.HoldReplies(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.Obtain(ctx, "a", time.Minute, nil)
	require.Error(t, err)
	proxy.ReleaseReplies()
	time.Sleep(soon) // for a clean-up
	assert.True(t, server.has(t, "a"), "the key of an Obtain that failed")
}

func TestRepro_redislock_lateSetIsApplied(t *testing.T) {
	const ttl = 2 * time.Second
	server := startRedis(t)
	proxy := testserver.NewProxy(t, server.Addr())
	c := redislockAt(t, proxy.Addr())
	proxy.HoldRequests(true)
	ctx, cancel := context.WithTimeout(t.Context(), ttl/4)
	defer cancel()
	_, err := c.Obtain(ctx, "a", ttl, nil)
	require.Error(t, err)
	time.Sleep(ttl)
	proxy.ReleaseRequests()
	await(t, "the key of an Obtain that failed long ago", func() bool { return server.has(t, "a") })
}

func TestRepro_redislock_cancellationIsNotHeeded(t *testing.T) {
	server := startRedis(t)
	c := redislockAt(t, server.Addr())
	held, err := c.Obtain(t.Context(), "a", soon, nil)
	require.NoError(t, err)
	server.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	obtained := start(func() error {
		_, err := c.Obtain(ctx, "b", time.Minute, nil)
		return err
	})
	released := start(func() error { return held.Release(ctx) })
	refreshed := start(func() error { return held.Refresh(ctx, time.Minute, nil) }) // its TTL is its deadline
	pending(t, "Obtain", obtained, soon)
	cancel()
	pending(t, "Obtain", obtained, 3*soon)
	pending(t, "Release", released, 0) // the TTL is over
	pending(t, "Refresh", refreshed, 0)
	server.Continue()
	_ = result(t, "Obtain", obtained)
	_ = result(t, "Release", released)
	_ = result(t, "Refresh", refreshed)
}

func TestRepro_redislock_lossIsKnownToTheServerAlone(t *testing.T) {
	server := startRedis(t)
	c := redislockAt(t, server.Addr())
	l, err := c.Obtain(t.Context(), "a", soon, nil)
	require.NoError(t, err)
	time.Sleep(2 * soon)
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err = l.TTL(ctx)
	require.Error(t, err, "the TTL is over, as its owner could know")
	server.Continue()
	ttl, err := l.TTL(t.Context())
	require.NoError(t, err)
	assert.Zero(t, ttl)
}

func TestRepro_redislock_renewsNothing(t *testing.T) {
	c := redislockAt(t, startRedis(t).Addr())
	_, err := c.Obtain(t.Context(), "a", soon, nil)
	require.NoError(t, err)
	await(t, "another has the lock", func() bool {
		_, err := c.Obtain(t.Context(), "a", time.Minute, nil)
		return err == nil
	})
}

func TestRepro_redislock_lostReplySaysNotHeld(t *testing.T) {
	server := startRedis(t)
	proxy := testserver.NewProxy(t, server.Addr())
	c := redislockAt(t, proxy.Addr())
	l, err := c.Obtain(t.Context(), "a", time.Minute, nil)
	require.NoError(t, err)
	proxy.HoldReplies(true)
	released := start(func() error { return l.Release(t.Context()) })
	await(t, "the release is applied", func() bool { return !server.has(t, "a") })
	proxy.HoldReplies(false)
	proxy.ResetConns() // the client asks again
	assert.ErrorIs(t, result(t, "Release", released), redislock.ErrLockNotHeld)
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
