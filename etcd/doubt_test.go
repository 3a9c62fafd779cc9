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

// The answer to a take is lost, and nobody waits for it any more: the key is removed, and a mark stays on the session.
func TestLostReply_ofATakeThatIsGivenUp_leavesNoKey(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(*locker.Mutex, context.Context) error{
		"Lock": (*locker.Mutex).Lock, "TryLock": (*locker.Mutex).TryLock,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, 10*time.Second)
			f.proxy.DropReplies(true)
			ctx, cancel := context.WithCancel(t.Context())
			done := async(func() error { return take(f.client.Mutex("x"), ctx) })
			eventually(t, "the server has applied the take", func() bool { return len(queue(t, f.direct, "x")) == 1 })
			cancel()
			err := await(t, done)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, locker.ErrHeld)
			f.proxy.DropReplies(false)
			f.proxy.ResetConns()
			require.NoError(t, f.other.Mutex("x").Lock(withTimeout(t, patient)), "long before the session ends")
			assert.Len(t, keys(t, f.direct, dead(t, "x")), 1)
			require.NoError(t, f.client.Close())
			assert.Empty(t, keys(t, f.direct, dead(t, "x")), "with the session goes the mark")
		})
	}
}

// However long the TTL is, a request that was lost is soon made again.
func TestLostReply_isAskedForAgainSoonWithALongTTL(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, 24*time.Hour)
	m := f.client.Mutex("x")
	for what, step := range map[string]func(*locker.Mutex, context.Context) error{
		"Lock": (*locker.Mutex).Lock, "Extend": (*locker.Mutex).Extend, "Unlock": (*locker.Mutex).Unlock,
	} {
		if what != "Lock" {
			require.NoError(t, m.Lock(t.Context()))
		}
		f.proxy.HoldReplies(true)
		done := async(func() error { return step(m, t.Context()) })
		eventually(t, "it is answered", func() bool { _, replies := f.proxy.Held(); return replies > 0 })
		f.proxy.HoldReplies(false)
		f.proxy.ResetConns()
		began := time.Now()
		require.NoError(t, await(t, done), what)
		assert.Less(t, time.Since(began), 10*time.Second, what)
		if what != "Unlock" {
			require.NoError(t, m.Unlock(t.Context()))
		}
	}
}

// The same, but the session ended meanwhile: nobody can tell whether the release came first.
func TestLostReply_ofAnUnlock_whenTheSessionEnded_isALoss(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, 10*time.Second)
	m := f.client.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	session := leaseOf(t, f.direct, queue(t, f.direct, "x")[0])
	f.proxy.DropReplies(true)
	done := async(func() error { return m.Unlock(t.Context()) })
	eventually(t, "the server has released", func() bool { return len(queue(t, f.direct, "x")) == 0 })
	_, err := f.direct.Revoke(t.Context(), session)
	require.NoError(t, err)
	f.proxy.DropReplies(false)
	f.proxy.ResetConns()
	require.ErrorIs(t, await(t, done), locker.ErrLost)
}

// Attempts that end before the server has answered share one session, which it is then known by.
func TestLostReply_ofASession_leavesNoneBehind(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	proxy := testserver.NewProxy(t, s.Addr())
	direct := connect(t, s.Addr())
	cli := connect(t, proxy.Addr())
	require.EqualValues(t, 1, revisionNow(t, cli), "there is a connection")
	m := clientOf(t, cli, locker.WithTTL(time.Hour)).Mutex("x")
	proxy.HoldReplies(true)
	for range 5 {
		require.ErrorIs(t, m.TryLock(withTimeout(t, 20*time.Millisecond)), context.DeadlineExceeded)
	}
	eventually(t, "the server has granted one", func() bool { return len(leases(t, direct)) > 0 })
	proxy.ReleaseReplies()
	require.NoError(t, m.Lock(t.Context()))
	assert.Len(t, leases(t, direct), 1)
	require.NoError(t, m.Unlock(t.Context()))
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
