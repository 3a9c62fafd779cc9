package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// pair is a primary, and a standby that is promoted when the primary has died.
type pair struct{ primary, standby *testserver.PostgresServer }

func newPair(t testing.TB, settings ...string) pair {
	t.Helper()
	primary := testserver.Postgres(t, testserver.PostgresSettings("wal_keep_size=64MB"))
	p := pair{primary, primary.Standby(testserver.PostgresSettings("wal_receiver_status_interval=1"))}
	eventually(t, "the standby follows", func() bool {
		return value[int](t, primary.URL(), "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == 1
	})
	for _, setting := range settings {
		execute(t, primary.URL(), "ALTER SYSTEM SET "+setting)
	}
	execute(t, primary.URL(), "SELECT pg_reload_conf()")
	return p
}

// open makes a Client of both, which finds the one that writes are for.
func (p pair) open(t testing.TB) *locker.Client {
	t.Helper()
	return openURL(t, fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&connect_timeout=2", p.primary.Addr(), p.standby.Addr()))
}

// failOver kills the primary, and promotes the standby.
func (p pair) failOver(t testing.TB) {
	t.Helper()
	p.primary.Kill()
	require.True(t, value[bool](t, p.standby.URL(), "SELECT pg_promote()"))
}

// received reports whether the standby has applied what the primary has.
func (p pair) received(t testing.TB) bool {
	t.Helper()
	return value[bool](t, p.primary.URL(), "SELECT coalesce(replay_lsn = pg_current_wal_flush_lsn(), false) FROM pg_stat_replication")
}

func warningsOf(t testing.TB, c *locker.Client) string {
	t.Helper()
	warnings, err := c.Warnings(t.Context())
	require.NoError(t, err)
	return fmt.Sprint(warnings)
}

// An asynchronous standby that takes over may not have heard of a hold: then another gets the lock while the first holds it. Tokens rise all the same.
func TestFailover_anAsynchronousStandbyLosesTheHold(t *testing.T) {
	testwait.OnlyNightly(t, "it is two servers more")
	t.Parallel()
	p := newPair(t)
	c := p.open(t)
	m := c.Mutex("x")
	require.NoError(t, c.Mutex("another").Lock(t.Context())) // there is a table
	assert.Contains(t, warningsOf(t, c), "replication is asynchronous")
	eventually(t, "the standby has all", func() bool { return p.received(t) })

	execute(t, p.standby.URL(), "ALTER SYSTEM SET primary_conninfo = ''")
	execute(t, p.standby.URL(), "SELECT pg_reload_conf()")
	eventually(t, "it hears nothing any more", func() bool {
		return value[int](t, p.primary.URL(), "SELECT count(*) FROM pg_stat_replication") == 0
	})
	require.NoError(t, m.Lock(t.Context()))
	p.failOver(t)
	second := p.open(t).Mutex("x")
	require.NoError(t, second.TryLock(withTimeout(t, 10*time.Second)), "the lock is lost")
	assert.Greater(t, second.FencingToken(), m.FencingToken(), "and a fence tells the two apart")
	eventually(t, "the first holder hears of it", func() bool { return errors.Is(m.Extend(t.Context()), locker.ErrLost) })
}

// A synchronous standby has each hold before it is granted.
func TestFailover_aSynchronousStandbyKeepsTheHold(t *testing.T) {
	testwait.OnlyNightly(t, "it is two servers more")
	t.Parallel()
	for _, commit := range []string{"on", "remote_apply"} {
		t.Run("synchronous_commit="+commit, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, "synchronous_standby_names = 'standby'", "synchronous_commit = "+commit)
			eventually(t, "the standby is synchronous", func() bool {
				return value[int](t, p.primary.URL(), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1
			})
			c := p.open(t)
			assert.NotContains(t, warningsOf(t, c), "standby")
			held := make([]*locker.Mutex, 20)
			for i := range held { // each is granted a moment before the next, the last a moment before the end
				held[i] = c.Mutex(fmt.Sprint("x", i))
				require.NoError(t, held[i].Lock(t.Context()))
			}
			p.failOver(t)
			other := p.open(t)
			for i, m := range held {
				require.ErrorIs(t, other.Mutex(fmt.Sprint("x", i)).TryLock(withTimeout(t, 10*time.Second)), locker.ErrHeld)
				eventually(t, "it goes on", func() bool { return m.Extend(t.Context()) == nil })
				token := m.FencingToken()
				require.NoError(t, m.Unlock(t.Context()))
				require.NoError(t, m.Lock(t.Context()))
				assert.Greater(t, m.FencingToken(), token)
			}
		})
	}
}

// What a standby is told too late, the server warns of.
func TestWarnings_ofSettingsThatLoseHolds(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	c := newClient(t, s.URL())
	said := warningsOf(t, c)
	assert.Contains(t, said, "fsync=off")
	assert.NotContains(t, said, "synchronous_commit")
	assert.NotContains(t, said, "notifications")
	execute(t, s.URL(), "ALTER ROLE postgres SET synchronous_commit = off")
	assert.Contains(t, warningsOf(t, newClient(t, s.URL())), "synchronous_commit=off")
}

// A server that is restored from a backup has forgotten holds and tokens: tokens go on by the clock.
func TestRestore_tokensRise(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	lock := func() uint64 {
		m := newClient(t, s.URL(), locker.WithTTL(2*time.Second)).Mutex("x")
		require.NoError(t, m.Lock(withTimeout(t, 20*time.Second)), "a release may be lost in a crash")
		defer func() { require.NoError(t, m.Unlock(t.Context())) }()
		return m.FencingToken()
	}
	lock()
	restore := s.Backup()
	last := uint64(0)
	for range 20 {
		last = lock()
	}
	restore()
	assert.Greater(t, lock(), last)
}
