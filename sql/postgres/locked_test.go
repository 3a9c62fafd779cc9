package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/sql/postgres"
)

// lockRows has a transaction lock rows of the table until it is rolled back.
func lockRows(t *testing.T, s *testserver.PostgresServer, which string) (rollback func()) {
	t.Helper()
	tx, err := session(t, s.URL()).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM locker_locks "+which)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// A row that another transaction has locked keeps nobody else's hold from being renewed, and its
// own only until that ends.
func TestRenewal_besideALockedRow(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	const ttl = 5 * time.Second
	c := openURL(t, s.URL(), locker.WithTTL(ttl))
	ms := held(t, c, 3)
	rollback := lockRows(t, s, "WHERE name = 'locker:hold1' FOR SHARE")
	stillHeld(t, ttl, ms[0], ms[2])
	require.Zero(t, ms[1].FencingToken(), "its row cannot be written")
	rollback()
	unlock(t, ms[0], ms[2])

	// For less than the rest of its TTL it costs the hold nothing.
	m := c.Mutex("hold1")
	require.NoError(t, m.Lock(t.Context()))
	rollback = lockRows(t, s, "WHERE name = 'locker:hold1' FOR SHARE")
	time.Sleep(ttl / 2)
	rollback()
	stillHeld(t, ttl, m)
	unlock(t, m)
}

// Others lock the row one after the other, with no time between: a renewal has its turn.
func TestRenewal_ofARowThatOthersLockAllTheTime(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	pool, counts := poolOf(t, s.URL())
	c, err := postgres.New(pool, locker.WithTTL(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	m := held(t, c, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	var lockers []<-chan error
	for range 3 {
		conn := session(t, s.URL())
		lockers = append(lockers, async(func() error {
			for ctx.Err() == nil {
				if _, err := conn.PgConn().Exec(t.Context(), "BEGIN; SELECT FROM locker_locks WHERE key <> '' FOR UPDATE; SELECT pg_sleep(0.1); COMMIT").ReadAll(); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	eventually(t, "one has it, and another waits", func() bool {
		return value[bool](t, s.URL(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
	})
	var most int64
	for range 5 {
		most = max(most, counts.of(func() { require.NoError(t, m.Extend(t.Context())) }))
	}
	assert.Less(t, most, int64(20), "requests of one Extend")
	cancel()
	for _, done := range lockers {
		require.NoError(t, await(t, done))
	}
	unlock(t, m)
}

// Rows that others have locked, as many as the Client has connections, keep it from nothing that is
// about another lock.
func TestRelease_besideLockedRows(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	const ttl = 10 * time.Second
	c := openURL(t, s.URL()+"&pool_max_conns=2", locker.WithTTL(ttl))
	ms := held(t, c, 6)
	rollback := lockRows(t, s, "WHERE name IN ('locker:hold0', 'locker:hold1', 'locker:hold2') FOR UPDATE")
	var released []<-chan error
	for _, m := range ms[:3] {
		released = append(released, async(func() error { return m.Unlock(t.Context()) }))
	}
	time.Sleep(100 * time.Millisecond) // they wait for the rows
	require.NoError(t, ms[3].Extend(withTimeout(t, ttl/2)))
	require.NoError(t, ms[4].Unlock(withTimeout(t, ttl/2)))
	stillHeld(t, ttl, ms[3], ms[5])
	rollback()
	for _, done := range released {
		_ = await(t, done) // it has expired meanwhile
	}
	unlock(t, ms[3], ms[5])
}

// A Lock waits for a row that another transaction has locked in a statement that gives up soon:
// Locks of other names are behind it.
func TestLock_besideALockedRow(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	c := openURL(t, s.URL(), locker.WithTTL(time.Minute))
	m := held(t, c, 1)[0]
	unlock(t, m)
	rollback := lockRows(t, s, "FOR UPDATE")
	locked := async(func() error { return m.Lock(t.Context()) })
	eventually(t, "it waits", func() bool {
		query := value[string](t, s.URL(), "SELECT coalesce(max(query), '') FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
		require.NotContains(t, query, "UPDATE", "nothing ends that")
		return query != ""
	})
	rollback()
	require.NoError(t, await(t, locked))
	unlock(t, m)
}
