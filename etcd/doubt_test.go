package etcd_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestLostReply_ofAnUnlock_isASuccess(t *testing.T) {
	t.Parallel()
	sessions(t).UnlockUnanswered(t)
}

// A take arrives after the clean-up of the attempt that made it. A client of two connections has one held back, with
// the take on it, and cleans up on the other.
func TestLateTake_afterItsCleanUpDoesNothing(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second // the session is to outlast what the clean-up takes
	s := testserver.SharedEtcd(t)
	proxies := []*testserver.Proxy{testserver.NewProxy(t, s.Addr()), testserver.NewProxy(t, s.Addr())}
	held := func(p *testserver.Proxy) int {
		requests, _ := p.Held()
		return requests
	}
	direct := connect(t, s.Addr())
	c := clientOf(t, connect(t, proxies[0].Addr(), proxies[1].Addr()), locker.WithTTL(ttl), locker.WithoutRenewal())
	other := clientOf(t, direct, locker.WithTTL(ttl))
	for trial := range 4 {
		name := fmt.Sprint("x", trial)
		warm := c.Mutex("warm")
		require.NoError(t, warm.Lock(t.Context()))
		require.NoError(t, warm.Unlock(t.Context()))
		for _, p := range proxies {
			p.HoldRequests(true)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := async(func() error { return c.Mutex(name).Lock(ctx) })
		const smallest = 100 // bytes of a take, and more than an acknowledgement has
		var take, free *testserver.Proxy
		eventually(t, "the take is on its way", func() bool {
			take, free = proxies[0], proxies[1]
			if held(free) > held(take) {
				take, free = free, take
			}
			return held(take) > smallest
		})
		free.ReleaseRequests()
		cancel()
		require.ErrorIs(t, await(t, done), context.Canceled)
		eventually(t, "the clean-up has reached the server", func() bool { return len(keys(t, direct, dead(t, name))) == 1 })
		require.Empty(t, queue(t, direct, name), "the take is still on its way")
		take.ReleaseRequests()
		require.NoError(t, warm.Lock(t.Context()))
		require.NoError(t, warm.Unlock(t.Context()))
		assert.Empty(t, queue(t, direct, name), "the late take has put a key")
		m := other.Mutex(name)
		require.NoError(t, m.TryLock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	}
}

// The answer to a renewal is late: the deadline counts from when it was sent.
func TestDeadline_countsFromWhenTheRenewalWasSent(t *testing.T) {
	t.Parallel()
	const ttl, late = 30 * time.Second, time.Second // more than the allowance for clocks
	f := newFaulty(t, ttl)
	m := f.client.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	f.proxy.HoldReplies(true)
	extended := async(func() error { return m.Extend(t.Context()) })
	eventually(t, "the renewal is answered", func() bool { _, replies := f.proxy.Held(); return replies > 0 })
	sent := time.Now() // or earlier
	time.Sleep(late)
	f.proxy.ReleaseReplies()
	require.NoError(t, await(t, extended))
	assert.True(t, m.Deadline().Before(sent.Add(ttl)))
	require.NoError(t, m.Unlock(t.Context()))
}
