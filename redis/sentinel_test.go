package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The old primary lives on for some ten seconds after a failover by hand, and takes what it is sent. Who
// waits does not go on listening to it.
func TestSentinel_whoWaitsListensToTheNewPrimary(t *testing.T) {
	testwait.OnlyNightly(t, "the suite has a waiter whose server fails; here the old primary lives on for ten seconds")
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
