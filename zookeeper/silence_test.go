package zookeeper_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Whether the servers' tick is known, or taken to be the longest.
func TestSilence_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	t.Parallel()
	for _, parameters := range []string{"", "&tick=100ms"} {
		t.Run(parameters, func(t *testing.T) {
			t.Parallel()
			network := testserver.NewProxy(t, testserver.SharedZooKeeper(t).Addr())
			c, err := locker.Open(t.Context(), "zookeeper://"+network.Addr()+"?prefix="+space(t)+"&ttl="+harness.SilenceTTL.String()+parameters)
			require.NoError(t, err)
			defer func() { assert.NoError(t, c.Close()) }()
			var end func()
			harness.OutlivesSilence(t, c.Mutex("x"), func() { end = silence(network) }, func() { end() })
			harness.OutlivesSlowness(t, c.Mutex("x"), network)
		})
	}
}

// The servers fall silent before an Unlock, and answer again just after the hold's deadline: the
// session goes on, and the node does not.
func TestSilence_untilAfterAnUnlockLeavesNothing(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	s := testserver.ZooKeeper(t)
	c := openURL(t, "zookeeper://"+s.Addr(), "ttl="+ttl.String())
	h, err := c.Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	s.Stop()
	time.Sleep(time.Until(h.Deadline()) - ttl/4)
	require.ErrorIs(t, h.Unlock(t.Context()), locker.ErrLost)
	s.Continue()
	h, err = c.Mutex("x").Acquire(withTimeout(t, patient))
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
}

// A Client is closed while a request is under way that makes the node of a lock, and its answer
// comes just then.
func TestClose_whileANodeIsMade(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	for i := range 20 {
		proxy := testserver.NewProxy(t, server.Addr())
		c := openURL(t, "zookeeper://"+proxy.Addr(), "ttl=10s")
		first := c.Mutex("first")
		require.NoError(t, first.Lock(t.Context()))
		require.NoError(t, first.Unlock(t.Context()))
		proxy.HoldReplies(true)
		locking := async(func() error { return c.Mutex(fmt.Sprint(i)).Lock(t.Context()) })
		eventually(t, "a request was answered", func() bool { _, replies := proxy.Held(); return replies > 0 })
		proxy.HoldReplies(false)
		proxy.ReleaseReplies()
		require.NoError(t, c.Close())
		require.ErrorIs(t, await(t, locking), locker.ErrClosed)
	}
}

// A request whose connection breaks is made once more, on the next one: the core tries the Extend of
// an application once.
func TestExtend_whoseConnectionBreaks(t *testing.T) {
	t.Parallel()
	proxy := testserver.NewProxy(t, testserver.SharedZooKeeper(t).Addr())
	m := openURL(t, "zookeeper://"+proxy.Addr(), "ttl=30s", locker.WithoutRenewal()).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, m.Extend(t.Context()))
	proxy.HoldReplies(true)
	extending := async(func() error { return m.Extend(t.Context()) })
	eventually(t, "it was answered", func() bool { _, replies := proxy.Held(); return replies > 0 })
	proxy.HoldReplies(false)
	proxy.ResetConns()
	require.NoError(t, await(t, extending))
	require.NoError(t, m.Unlock(t.Context()))
}
