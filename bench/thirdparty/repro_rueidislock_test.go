package thirdparty

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
)

// rueidislockAt has the settings of the package's own documentation for one server, and those of adjust.
func rueidislockAt(t *testing.T, addr string, adjust func(*rueidislock.LockerOption)) rueidislock.Locker {
	t.Helper()
	o := rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:  1, NoLoopTracking: true, TryNextAfter: time.Second,
	}
	if adjust != nil {
		adjust(&o)
	}
	l, err := rueidislock.NewLocker(o)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// waitFor calls WithContext.
func waitFor(ctx context.Context, l rueidislock.Locker, name string) <-chan error {
	return testwait.Go(func() error {
		_, _, err := l.WithContext(ctx, name)
		return err
	})
}

const keyOfA = "rueidislock:0:a"

func TestRepro_rueidislock_swallowsErrorsWhileWaiting(t *testing.T) {
	server := startRedis(t)
	l := rueidislockAt(t, server.Addr(), nil)
	require.NoError(t, server.direct.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, _, err := l.TryWithContext(t.Context(), "a")
	require.ErrorContains(t, err, "OOM")
	ctx := testwait.Context(t, soon)
	_, _, err = l.WithContext(ctx, "a")
	assert.Equal(t, context.DeadlineExceeded, err)
}

// It needs luck: up to ten thousand rounds. So eight locks are passed back and forth side by side.
func TestRepro_rueidislock_missesAnUnlock(t *testing.T) {
	server := startRedis(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	missed := make(chan int, 8)
	var all sync.WaitGroup
	for range cap(missed) {
		name := strconv.Itoa(rand.Int())
		holder, waiter := rueidislockAt(t, server.Addr(), nil), rueidislockAt(t, server.Addr(), nil)
		all.Go(func() {
			missed <- passBackAndForth(ctx, server, name, holder, waiter)
			cancel()
		})
	}
	all.Wait()
	close(missed)
	most := 0
	for round := range missed {
		most = max(most, round)
	}
	require.Positive(t, most, "no unlock was missed in two minutes")
	t.Logf("round %d: two seconds after the release the waiter has no lock", most)
}

// passBackAndForth returns the round in which the waiter has missed the unlock, or 0 if none was missed until ctx ended.
func passBackAndForth(ctx context.Context, server redisNode, name string, holder, waiter rueidislock.Locker) int {
	_, release, err := holder.WithContext(ctx, name)
	for round := 1; err == nil; round++ {
		var next context.CancelFunc
		locked := testwait.Go(func() (err error) {
			_, next, err = waiter.WithContext(ctx, name)
			return err
		})
		time.Sleep(rand.N(2 * time.Millisecond))
		release()
		select {
		case err = <-locked:
		case <-time.After(2 * time.Second):
			held, err := server.direct.Exists(ctx, "rueidislock:0:"+name).Result()
			if err == nil && held == 0 {
				return round
			}
			return 0
		}
		release = next
		holder, waiter = waiter, holder
	}
	return 0
}

func TestRepro_rueidislock_renewsWithoutEnd(t *testing.T) {
	server := startRedis(t)
	l := rueidislockAt(t, server.Addr(), func(o *rueidislock.LockerOption) {
		*o = rueidislock.LockerOption{ClientOption: o.ClientOption} // all else as by default
	})
	_, release, err := l.WithContext(t.Context(), "a")
	require.NoError(t, err)
	defer release()
	// Renewals of three keys are due every 2.5 s.
	patience.Until(t, "the hold is renewed a thousand times", func() bool { return server.calls(t, "evalsha") > 1000 })
}

func TestRepro_rueidislock_overrunAttemptWaitsForAFreeLock(t *testing.T) {
	server, proxy := startProxied(t)
	l := rueidislockAt(t, proxy.Addr(), func(o *rueidislock.LockerOption) { o.TryNextAfter = 0 }) // 20 ms
	patience.Until(t, "the scripts are known", func() bool {
		_, release, err := l.TryWithContext(t.Context(), "warm")
		if err == nil {
			release()
		}
		return err == nil
	})
	server.forget(t)
	proxy.Delay(50 * time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	locked := waitFor(ctx, l, "a")
	patience.Until(t, "the attempt was undone", func() bool { return server.calls(t, "del") == 1 })
	proxy.Delay(0)
	pending(t, "WithContext", locked, 10*soon) // hundred times what an attempt may take
	assert.False(t, server.has(t, keyOfA), "somebody holds the lock")
	cancel()
	require.ErrorIs(t, patience.Result(t, locked), context.Canceled)
}

func TestRepro_rueidislock_releaseWakesEverybody(t *testing.T) {
	const waiters = 8
	server := startRedis(t)
	_, release, err := rueidislockAt(t, server.Addr(), nil).WithContext(t.Context(), "a")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server.forget(t)
	for range waiters {
		waitFor(ctx, rueidislockAt(t, server.Addr(), nil), "a")
	}
	patience.Until(t, "all wait", func() bool { return server.calls(t, "evalsha") >= waiters })
	time.Sleep(soon)
	server.forget(t)
	release()
	patience.Until(t, "all have tried, but for one or two who missed it", func() bool { return server.calls(t, "evalsha") >= waiters-1 })
}
