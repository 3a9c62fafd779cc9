package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// loseReply has the server apply what do sends and the reply get lost; between runs then, before the
// connection breaks and go-redis sends the request again on another.
func loseReply(t *testing.T, f *faulty, applied func() bool, between func(), do func() error) error {
	t.Helper()
	f.proxy.HoldReplies(true)
	done := async(do)
	eventually(t, "the server has applied the request, and answered", func() bool {
		_, replies := f.proxy.Held()
		return replies > 0 && applied()
	})
	f.proxy.HoldReplies(false) // of other connections
	between()
	f.proxy.ResetConns()
	return await(t, done)
}

// The server knows its last two tokens: an earlier hold it may have had, or a failover may have forgotten it.
func TestLostReply_ofAnUnlock_isInDoubtWhenSeveralHaveHeldSince(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	ctx := t.Context()
	m, other := f.client.Mutex("x"), f.otherClient(t).Mutex("x")
	require.NoError(t, m.Lock(ctx))
	released := func() bool { return !isHeldAt(t, f.direct, keyOf("x")) }
	err := loseReply(t, f, released, func() {
		for range 5 {
			require.NoError(t, other.TryLock(ctx))
			require.NoError(t, other.Unlock(ctx))
		}
		require.NoError(t, other.TryLock(ctx))
	}, func() error { return m.Unlock(ctx) })
	require.ErrorIs(t, err, locker.ErrLost)
	require.NoError(t, other.Unlock(ctx), "the other's hold is untouched")
}

// A holds by the word of a server that is gone. The one that has taken over has not heard of it, and B holds there; A's release goes
// to the first, and then to the second.
func TestUnlock_ofAHoldThatAFailoverForgot_isErrLost(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"sent once": false, "sent again": true} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, heedingCtx)
			ctx := t.Context()
			a, b := f.client.Mutex("x"), f.otherClient(t).Mutex("x")
			require.NoError(t, b.Lock(ctx))
			require.NoError(t, b.Unlock(ctx))
			replica, err := f.direct.Dump(ctx, keyOf("x")).Result()
			require.NoError(t, err)
			require.NoError(t, a.Lock(ctx))
			require.NoError(t, f.direct.RestoreReplace(ctx, keyOf("x"), keep, replica).Err())
			require.NoError(t, b.TryLock(ctx))
			require.Greater(t, b.FencingToken(), a.FencingToken(), "A does not know yet")

			f.proxy.HoldRequests(again)
			done := async(func() error { return a.Unlock(ctx) })
			if again {
				eventually(t, "the release is on its way to the first", func() bool { n, _ := f.proxy.Held(); return n > 0 })
				f.proxy.HoldRequests(false)
				f.proxy.ResetConns()
			}
			require.ErrorIs(t, await(t, done), locker.ErrLost)
			assert.True(t, isHeldAt(t, f.direct, keyOf("x")), "B still holds")
		})
	}
}

// The reply to the first try is lost, and the next ones of go-redis find nobody to ask: their error
// says nothing of the first, which took the lock.
func TestLostReply_thenRefused_leavesNothingBehind(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, heedingCtx)
	ctx := t.Context()
	m := f.client.Mutex("x")
	f.proxy.DropReplies(true)
	done := async(func() error { return m.Lock(ctx) })
	eventually(t, "the server has applied the take", func() bool { return isHeldAt(t, f.direct, keyOf("x")) })
	f.proxy.Sever()
	f.proxy.DropReplies(false)
	err := await(t, done)
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrHeld)
	f.proxy.Restore()
	testwait.Patience(faultyTTL/2).Until(t, "what the attempt took is released, long before the TTL is over", func() bool {
		return !isHeldAt(t, f.direct, keyOf("x"))
	})
}

// faulty is a Client that reaches a server through a proxy.
type faulty struct {
	proxy  *testserver.Proxy
	direct *goredis.Client // to the server itself
	client *locker.Client  // through the proxy, without renewal
}

const faultyTTL = 10 * time.Second

func newFaulty(t *testing.T, change ...func(*goredis.Options)) *faulty {
	t.Helper()
	_, p, direct := behindProxy(t)
	loadScripts(t, direct)
	c := clientOf(t, connect(t, p.Addr(), change...), locker.WithTTL(faultyTTL), locker.WithoutRenewal())
	warm(t, c)
	return &faulty{p, direct, c}
}

// otherClient is one that does not go through the proxy.
func (f *faulty) otherClient(t *testing.T) *locker.Client {
	t.Helper()
	return clientOf(t, f.direct, locker.WithTTL(faultyTTL), locker.WithoutRenewal())
}
