package redis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// asked is the sentinel that a client has a subscription to.
func asked(t *testing.T, g *testserver.SentinelGroup) *testserver.RedisServer {
	t.Helper()
	var found *testserver.RedisServer
	eventually(t, "a client is subscribed at a sentinel", func() bool {
		for _, s := range g.Sentinels() {
			list, err := connect(t, s.Addr()).Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
			require.NoError(t, err)
			if strings.TrimSpace(list) != "" {
				found = s
			}
		}
		return found != nil
	})
	return found
}

// A sentinel often runs where the primary does, and goes with it. One that hangs is worse than one that is dead.
func TestSentinel_theOneThatTheClientAsksHangsAndThePrimaryDies(t *testing.T) {
	testwait.OnlyNightly(t, "TestFailover_whoWaitsGetsTheLock shows a primary that dies")
	t.Parallel()
	g := testserver.Sentinel(t)
	ctx := t.Context()
	m := openURL(t, sentinelURL(g), locker.WithTTL(2*time.Second)).Mutex("x")
	require.NoError(t, m.Lock(ctx))
	require.NoError(t, m.Unlock(ctx))
	hangs := asked(t, g)
	hangs.Stop()
	old := g.Primary()
	old.Kill()
	g.WaitFailover(old)
	start := time.Now()
	testwait.Patience(time.Minute).Until(t, "the client finds the new primary", func() bool { return m.Lock(ctx) == nil })
	t.Logf("found after %v", time.Since(start))
	require.NoError(t, m.Unlock(ctx))
	hangs.Continue()
}

// The old primary lives on for some ten seconds after a failover by hand, and takes what it is sent. Who
// waits does not go on listening to it.
func TestSentinel_whoWaitsListensToTheNewPrimary(t *testing.T) {
	testwait.OnlyNightly(t, "TestFailover_whoWaitsGetsTheLock shows one who waits through a failover; here the old primary lives on for ten seconds")
	t.Parallel()
	g := testserver.Sentinel(t)
	ctx := t.Context()
	holder := openURL(t, sentinelURL(g), locker.WithTTL(time.Minute), locker.WithoutRenewal()).Mutex("x")
	waiter := openURL(t, sentinelURL(g), locker.WithTTL(time.Minute), locker.WithoutRenewal()).Mutex("x")
	require.NoError(t, holder.Lock(ctx))
	done := async(func() error { return waiter.Lock(context.WithoutCancel(ctx)) })
	subscribed := func(s *testserver.RedisServer) bool {
		return len(connect(t, s.Addr()).PubSubChannels(ctx, keyOf("x")+":*").Val()) == 1
	}
	eventually(t, "it is subscribed", func() bool { return subscribed(g.Primary()) })
	g.Servers()[1].WaitSynced(g.Servers()[0])
	now := g.Failover()
	eventually(t, "the holder finds the new primary", func() bool { return holder.Extend(ctx) == nil })
	testwait.Patience(time.Minute).Until(t, "it is subscribed at the new primary", func() bool { return subscribed(now) })
	require.NoError(t, holder.Unlock(ctx))
	require.NoError(t, await(t, done))
	require.NoError(t, waiter.Unlock(ctx))
}
