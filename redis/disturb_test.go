package redis_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestClientKill_betweenAndDuringOperationsIsNoLoss(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
