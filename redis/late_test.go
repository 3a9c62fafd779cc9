package redis_test

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// holdTake has a Lock given up while its request is held back on the way, and waits until a clean-up has reached the server.
func holdTake(t *testing.T, f *faulty) {
	t.Helper()
	f.proxy.HoldRequests(true)
	err := f.client.Mutex("x").Lock(withTimeout(t, 50*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, locker.ErrHeld)
	requests, _ := f.proxy.Held()
	require.Positive(t, requests, "the take is on its way")
	resetStats(t, f.direct)
	f.proxy.HoldRequests(false)
	eventually(t, "the clean-up has reached the server", func() bool { return scriptsRun(t, f.direct) == 1 })
	assert.NoError(t, f.otherClient(t).Mutex("x").TryLock(t.Context()), "nobody holds before the late take arrives")
	require.NoError(t, f.direct.HDel(t.Context(), keyOf("x"), "owner").Err())
}

// giveUpHeldTake delivers it when the client library has given up on it, too.
func giveUpHeldTake(t *testing.T, f *faulty) {
	t.Helper()
	holdTake(t, f)
	time.Sleep(f.ttl)
	eventually(t, "the clean-up is over", func() bool {
		before := scriptsRun(t, f.direct)
		time.Sleep(f.ttl / 2)
		return scriptsRun(t, f.direct) == before
	})
	resetStats(t, f.direct)
	f.proxy.ReleaseRequests()
	eventually(t, "the late take has arrived", func() bool { return scriptsRun(t, f.direct) == 1 })
}

// A take that is still in time is granted, to nobody, and given back with its answer.
func TestLateTake_thatIsGrantedToNobodyIsUndone(t *testing.T) {
	t.Parallel()
	f := newFaultyTTL(t, time.Minute, heedingCtx)
	holdTake(t, f)
	f.proxy.ReleaseRequests()
	eventually(t, "it is granted, and given back", func() bool { return scriptsRun(t, f.direct) == 4 && !isHeldAt(t, f.direct, keyOf("x")) })
	assert.NoError(t, f.client.Mutex("x").TryLock(t.Context()))
}

func TestLateTake_isRefusedOnceTheServersClockIsKnown(t *testing.T) {
	t.Parallel()
	f := newFaultyTTL(t, time.Second, heedingCtx)
	warm := f.client.Mutex("warm")
	require.NoError(t, warm.Lock(t.Context()))
	require.NoError(t, warm.Unlock(t.Context()))
	giveUpHeldTake(t, f)
	assert.False(t, isHeldAt(t, f.direct, keyOf("x")), "nobody waits for the late take any more")
	assert.NoError(t, f.client.Mutex("x").TryLock(t.Context()))
}

func TestLateTake_ofAClientThatIgnoresCtxIsRefusedToo(t *testing.T) {
	t.Parallel()
	f := newFaultyTTL(t, time.Second, func(o *goredis.Options) { o.ReadTimeout, o.MaxRetries = 700*time.Millisecond, -1 })
	warm := f.client.Mutex("warm")
	require.NoError(t, warm.Lock(t.Context()))
	require.NoError(t, warm.Unlock(t.Context()))
	giveUpHeldTake(t, f)
	assert.False(t, isHeldAt(t, f.direct, keyOf("x")), "nobody waits for the late take any more")
}

func TestLateTake_locksNobodyOutForLongerThanOneTTL(t *testing.T) {
	t.Parallel()
	f := newFaultyTTL(t, time.Second, heedingCtx)
	giveUpHeldTake(t, f)
	assert.LessOrEqual(t, f.direct.PTTL(t.Context(), keyOf("x")).Val()-keep, f.ttl)
	m := f.client.Mutex("x")
	require.NoError(t, m.Lock(withTimeout(t, patient)))
	assert.NoError(t, m.Unlock(t.Context()))
}

func TestLateExtend_afterReleaseOrTakeOverDoesNothing(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(t *testing.T, f *faulty){
		"released": func(*testing.T, *faulty) {},
		"taken over": func(t *testing.T, f *faulty) {
			require.NoError(t, f.otherClient(t).Mutex("x").Lock(t.Context()))
		},
		"forgotten": func(t *testing.T, f *faulty) {
			require.NoError(t, f.direct.Del(t.Context(), keyOf("x")).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, heedingCtx)
			lease := take(t, f.driver, "locker:x", time.Second)
			f.proxy.HoldRequests(true)
			extending := async(func() error { return lease.Extend(withTimeout(t, 200*time.Millisecond), time.Hour) })
			eventually(t, "the extension is on its way", func() bool { n, _ := f.proxy.Held(); return n > 0 })
			f.proxy.HoldRequests(false)
			require.NoError(t, lease.Release(t.Context()), "does not wait for it")
			require.Error(t, await(t, extending))
			then(t, f)
			before, err := f.direct.HGetAll(t.Context(), keyOf("x")).Result()
			require.NoError(t, err)
			expires := f.direct.PExpireTime(t.Context(), keyOf("x")).Val()
			resetStats(t, f.direct)
			f.proxy.ReleaseRequests()
			eventually(t, "the late extension has arrived", func() bool { return scriptsRun(t, f.direct) == 1 })
			after, err := f.direct.HGetAll(t.Context(), keyOf("x")).Result()
			require.NoError(t, err)
			assert.Equal(t, before, after)
			assert.Equal(t, expires, f.direct.PExpireTime(t.Context(), keyOf("x")).Val(), "when the hash expires")
		})
	}
}

// A hold outlives the TTL of its last confirmed extension at most by the TTL of one that comes late.
func TestLateExtend_afterTheLocalDeadlineIsGivenBack(t *testing.T) {
	t.Parallel()
	f := newFaultyTTL(t, 2*time.Second, heedingCtx)
	m := f.client.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	f.proxy.HoldReplies(true)
	extending := async(func() error { return m.Extend(t.Context()) })
	<-m.Lost()
	require.Error(t, await(t, extending))
	f.proxy.HoldReplies(false)
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
	eventually(t, "the lock is free", func() bool { return !isHeldAt(t, f.direct, keyOf("x")) })
}
