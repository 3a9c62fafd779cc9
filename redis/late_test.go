package redis_test

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// holdTake has a Lock given up while its request is held back on the way, and waits until a clean-up has reached the server.
func holdTake(t *testing.T, f *faulty) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context()) // without a deadline, which the request would carry
	f.proxy.HoldRequests(true)
	locking := async(func() error { return f.client.Mutex("x").Lock(ctx) })
	eventually(t, "the take is on its way", func() bool { requests, _ := f.proxy.Held(); return requests > 0 })
	cancel()
	err := await(t, locking)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, locker.ErrHeld)
	resetStats(t, f.direct)
	f.proxy.HoldRequests(false)
	eventually(t, "the clean-up has reached the server", func() bool { return scriptsRun(t, f.direct) == 1 })
	assert.NoError(t, f.otherClient(t).Mutex("x").TryLock(t.Context()), "nobody holds before the late take arrives")
	require.NoError(t, f.direct.HDel(t.Context(), keyOf("x"), "owner").Err())
	resetStats(t, f.direct)
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
	eventually(t, "it is granted, and given back", func() bool { return scriptsRun(t, f.direct) == 2 && !isHeldAt(t, f.direct, keyOf("x")) })
	assert.NoError(t, f.client.Mutex("x").TryLock(t.Context()))
}

func TestLateTake_isRefusedOnceTheServersClockIsKnown(t *testing.T) {
	t.Parallel()
	f := newFaultyTTL(t, time.Second, heedingCtx)
	giveUpHeldTake(t, f)
	assert.False(t, isHeldAt(t, f.direct, keyOf("x")), "nobody waits for the late take any more")
	assert.NoError(t, f.client.Mutex("x").TryLock(t.Context()))
}

func TestLateTake_ofAClientThatIgnoresCtxIsRefusedToo(t *testing.T) {
	t.Parallel()
	f := newFaultyTTL(t, time.Second, func(o *goredis.Options) { o.ReadTimeout, o.MaxRetries = 700*time.Millisecond, -1 })
	giveUpHeldTake(t, f)
	assert.False(t, isHeldAt(t, f.direct, keyOf("x")), "nobody waits for the late take any more")
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

// lateTake has a take reach the server so long after it was sent, when nobody waits for it, and nobody gives it back. It returns
// when the request was sent, and until when the server holds the lock; the zero Time if it does not.
func lateTake(t *testing.T, f *faulty, after time.Duration) (sent, until time.Time) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f.proxy.HoldRequests(true)
	sent = time.Now()
	taking := async(func() error {
		_, err := f.driver.Acquire(ctx, driver.Request{Name: "locker:x", TTL: f.ttl})
		return err
	})
	eventually(t, "the take is on its way", func() bool { requests, _ := f.proxy.Held(); return requests > 0 })
	cancel()
	require.ErrorIs(t, await(t, taking), context.Canceled)
	time.Sleep(time.Until(sent.Add(after)))
	resetStats(t, f.direct)
	f.proxy.ReleaseRequests()
	eventually(t, "the late take has arrived", func() bool { return scriptsRun(t, f.direct) == 1 })
	if !isHeldAt(t, f.direct, keyOf("x")) {
		return sent, time.Time{}
	}
	now := time.Now()
	return sent, now.Add(f.direct.PTTL(t.Context(), keyOf("x")).Val() - keep)
}

// Nobody gives it back: its process has died.
func TestLateTake_locksNobodyOutForLongerThanOneTTL(t *testing.T) {
	t.Parallel()
	f := newFaultyTTL(t, 10*time.Second)
	require.NoError(t, take(t, f.driver, "locker:x", f.ttl).Release(t.Context()))
	sent, until := lateTake(t, f, f.ttl/5)
	require.False(t, until.IsZero(), "it is in time to be granted, for what is left")
	const allowance = 200 * time.Millisecond // TTL/100 + 2 ms, and this test's own
	assert.LessOrEqual(t, until.Sub(sent), f.ttl+allowance, "from when it was sent until others get the lock")
}

func TestLateTake_isRefusedWhenTooLittleIsLeft(t *testing.T) {
	t.Parallel()
	f := newFaultyTTL(t, 3*time.Second)
	sent, until := lateTake(t, f, f.ttl*2/5)
	assert.Zero(t, until, "it was sent %v before, and nobody waits for it", time.Since(sent))
}

func TestLateTake_isRefusedAlsoIfItIsTheFirstOfADriver(t *testing.T) {
	t.Parallel()
	f := newFaultyTTL(t, time.Second)
	f.driver = driverOf(t, f.rdb)
	_, until := lateTake(t, f, 50*time.Millisecond)
	assert.Zero(t, until, "the server's clock was not known when it was sent")
}
