package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestRenewal_stopsWithUnlock(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	m := newClient(t, s.Addr(), locker.WithTTL(ttl)).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	eventually(t, "it was renewed", func() bool { return commandCalls(t, rdb)["pexpire"] > 1 })
	require.NoError(t, m.Unlock(t.Context()))
	resetStats(t, rdb)
	time.Sleep(ttl) // time enough for a renewal that must not come
	assert.Zero(t, scriptsRun(t, rdb))
}

func TestLoss_byTheNextRenewalOfAServerThatForgot(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	s := testserver.Redis(t)
	ctx := t.Context()
	rdb := connect(t, s.Addr())
	for name, forget := range map[string]func(m *locker.Mutex){
		"FLUSHALL": func(*locker.Mutex) { require.NoError(t, rdb.FlushAll(ctx).Err()) },
		"taken over": func(m *locker.Mutex) {
			require.NoError(t, rdb.Del(ctx, keyOf(m.Name())).Err())
			take(t, driverOf(t, rdb), "locker:"+m.Name(), time.Minute)
		},
		"restart": func(*locker.Mutex) { s.Kill(); s.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			m := newClient(t, s.Addr(), locker.WithTTL(ttl)).Mutex(name)
			require.NoError(t, m.Lock(ctx))
			token, deadline := m.FencingToken(), m.Deadline()
			forget(m)
			select {
			case <-m.Lost():
			case <-time.After(patient):
				t.Fatal("not lost")
			}
			assert.True(t, time.Now().Before(deadline), "renewals are due after TTL/3")
			assert.Zero(t, m.FencingToken())
			require.ErrorIs(t, m.Lock(ctx), locker.ErrLost, "before its Unlock")
			require.ErrorIs(t, m.Unlock(ctx), locker.ErrLost)
			if name == "taken over" {
				assert.True(t, isHeldAt(t, rdb, keyOf(name)), "the new holder is left alone")
				return
			}
			require.NoError(t, m.Lock(ctx), "after it")
			assert.Greater(t, m.FencingToken(), token)
			assert.NoError(t, m.Unlock(ctx))
		})
	}
}
