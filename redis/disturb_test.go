package redis_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stopwatch"
	"github.com/go-locker/locker/internal/testserver"
	"github.com/go-locker/locker/internal/testwait"
)

func TestClientKill_betweenAndDuringOperationsIsNoLoss(t *testing.T) {
	const ttl = 2 * time.Second
	s := testserver.Redis(t)
	ctx := t.Context()
	admin := connect(t, s.Addr())
	m := newClient(t, s.Addr(), locker.WithTTL(ttl)).Mutex("x")
	stop, killed := make(chan struct{}), 0
	const seldom, often = int64(50 * tick), int64(15 * tick) // seldom: one of an Unlock's three tries gets through
	var pause atomic.Int64
	pause.Store(seldom)
	killing := async(func() error {
		for {
			select {
			case <-stop:
				return nil
			case <-time.After(time.Duration(pause.Load())):
				n, err := admin.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Int()
				if err != nil {
					return err
				}
				killed += n
			}
		}
	})
	var last uint64
	for end := time.Now().Add(ttl / 2); time.Now().Before(end); {
		require.NoError(t, m.Lock(ctx))
		require.Greater(t, m.FencingToken(), last)
		last = m.FencingToken()
		require.NoError(t, m.Extend(ctx))
		require.NoError(t, m.Unlock(ctx))
	}
	require.NoError(t, m.Lock(ctx))
	pause.Store(often)
	time.Sleep(ttl + ttl/2) // renewals under fire
	pause.Store(seldom)
	assert.NotZero(t, m.FencingToken())
	require.NoError(t, m.Unlock(ctx))
	close(stop)
	require.NoError(t, await(t, killing))
	assert.Positive(t, killed)
	t.Logf("%d connections killed", killed)
}

func TestClientPause_shorterThanTheAttemptIsOnlyADelay(t *testing.T) {
	s := testserver.Redis(t)
	ctx := t.Context()
	admin := connect(t, s.Addr())
	m := newClient(t, s.Addr(), locker.WithTTL(time.Minute)).Mutex("x")
	pause := func() {
		require.NoError(t, admin.ClientPause(ctx, 200*time.Millisecond).Err())
	}
	pause()
	require.NoError(t, m.Lock(ctx))
	pause()
	require.NoError(t, m.Extend(ctx))
	pause()
	require.NoError(t, m.Unlock(ctx))
}

func TestClientPause_longerThanCtxLeavesNothingForLong(t *testing.T) {
	const ttl = time.Second
	s := testserver.Redis(t)
	admin := connect(t, s.Addr())
	for name, kind := range clients {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, connect(t, s.Addr(), kind), locker.WithTTL(ttl))
			m := c.Mutex("x")
			require.NoError(t, m.Lock(t.Context()), "sets the clock")
			require.NoError(t, m.Unlock(t.Context()))
			require.NoError(t, admin.ClientPause(t.Context(), 2*time.Second).Err())
			start := time.Now()
			err := m.Lock(withTimeout(t, 50*time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, locker.ErrHeld)
			assert.Less(t, time.Since(start), time.Second, "while the server pauses")
			testwait.Patience(2*time.Second+ttl+time.Second).Until(t, "the lock is free within a TTL of the pause's end", func() bool {
				err := m.Lock(t.Context())
				require.NotErrorIs(t, err, locker.ErrLost)
				return err == nil
			})
			require.NoError(t, m.Unlock(t.Context()))
		})
	}
}

func TestClientPause_longerThanTheTTLIsALoss(t *testing.T) {
	const ttl = 2 * time.Second
	s := testserver.Redis(t)
	admin := connect(t, s.Addr())
	m := newClient(t, s.Addr(), locker.WithTTL(ttl)).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, admin.ClientPause(t.Context(), 2*ttl).Err())
	elapsed := stopwatch.Start(t)
	<-m.Lost()
	assert.Less(t, elapsed(), ttl+50*time.Millisecond)
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
	eventually(t, "it can be locked again", func() bool { return m.Lock(t.Context()) == nil })
	require.NoError(t, m.Unlock(t.Context()))
}
