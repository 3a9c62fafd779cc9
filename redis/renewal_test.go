package redis_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stopwatch"
	"github.com/go-locker/locker/internal/testserver"
)

func TestRenewal_keepsManyHoldsOverSeveralTTLs(t *testing.T) {
	const ttl = 2 * time.Second
	s := testserver.Redis(t)
	ctx := t.Context()
	rdb := connect(t, s.Addr())
	c, other := newClient(t, s.Addr(), locker.WithTTL(ttl)), newClient(t, s.Addr())
	var held []*locker.Mutex
	tokens := map[*locker.Mutex]uint64{}
	for i := range 50 {
		m := c.Mutex(fmt.Sprint(i))
		require.NoError(t, m.Lock(ctx))
		held = append(held, m)
		tokens[m] = m.FencingToken()
	}
	for end := time.Now().Add(5 * ttl); time.Now().Before(end); {
		for _, m := range held {
			require.ErrorIs(t, other.Mutex(m.Name()).TryLock(ctx), locker.ErrHeld)
		}
	}
	for _, m := range held {
		select {
		case <-m.Lost():
			t.Errorf("%s was lost", m.Name())
		default:
		}
		assert.Equal(t, tokens[m], m.FencingToken())
		require.NoError(t, m.Unlock(ctx))
		assert.False(t, isHeldAt(t, rdb, keyOf(m.Name())))
	}
}

func TestRenewal_stopsWithUnlock(t *testing.T) {
	const ttl = 2 * time.Second
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	m := newClient(t, s.Addr(), locker.WithTTL(ttl)).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	eventually(t, "it was renewed", func() bool { return commandCalls(t, rdb)["pexpire"] > 2 })
	require.NoError(t, m.Unlock(t.Context()))
	resetStats(t, rdb)
	time.Sleep(2 * ttl) // time enough for a renewal that must not come
	assert.Zero(t, scriptsRun(t, rdb))
}

func TestLoss_byTheDeadlineOfAServerThatStopped(t *testing.T) {
	const ttl = 2 * time.Second // the client waits for an answer for longer
	for name, kind := range clients {
		t.Run(name, func(t *testing.T) {
			s := testserver.Redis(t)
			c := clientOf(t, connect(t, s.Addr(), kind), locker.WithTTL(ttl))
			m := c.Mutex("x")
			elapsed := stopwatch.Start(t)
			err := m.Do(t.Context(), func(ctx context.Context) error {
				begun := elapsed()
				s.Stop()
				<-ctx.Done()
				late := elapsed() - begun - ttl // the deadline is earlier
				assert.Less(t, late, 30*time.Millisecond, "after the deadline")
				require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
				assert.Zero(t, m.FencingToken())
				t.Logf("lost %v after the deadline", late)
				s.Continue()
				return nil
			})
			assert.ErrorIs(t, err, locker.ErrLost)
		})
	}
}

func TestLoss_byTheNextRenewalOfAServerThatForgot(t *testing.T) {
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
			token := m.FencingToken()
			forget(m)
			start := time.Now()
			select {
			case <-m.Lost():
			case <-time.After(patient):
				t.Fatal("not lost")
			}
			assert.Less(t, time.Since(start), ttl/2+ttl/10, "renewals are due after TTL/3")
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

func TestRenewal_ridesOutAShortOutage(t *testing.T) {
	const ttl = 2 * time.Second
	s := testserver.Redis(t)
	m := newClient(t, s.Addr(), locker.WithTTL(ttl)).Mutex("x")
	for range 3 {
		require.NoError(t, m.Lock(t.Context()))
		s.Stop()
		time.Sleep(ttl / 2) // shorter than what is left
		s.Continue()
		extended := m.Deadline().Add(ttl / 2)
		eventually(t, "it is renewed", func() bool { return m.Deadline().After(extended) || m.FencingToken() == 0 })
		require.NoError(t, m.Unlock(t.Context()))
	}
}
