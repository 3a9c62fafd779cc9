package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/sql/postgres"
)

// waiters returns how many wait.
func waiters(t testing.TB, c *locker.Client, name string) int {
	t.Helper()
	s, err := c.Inspect(t.Context(), name)
	require.NoError(t, err)
	return len(s.Waiters)
}

// waits has a Lock of m wait as number n of its lock.
func waits(t testing.TB, ctx context.Context, c *locker.Client, m *locker.Mutex, n int) <-chan error { //nolint:revive // t comes first
	t.Helper()
	done := async(func() error { return m.Lock(ctx) })
	eventually(t, "it waits", func() bool { return waiters(t, c, "x") == n })
	return done
}

const notified = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"

func TestQueue_aTryLockDoesNotOvertake(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	pool, _ := poolOf(t, url)
	d := postgres.NewDriver(pool, "")
	t.Cleanup(func() { _ = d.Close() })
	c := newClient(t, url)
	m, next := c.Mutex("x"), newClient(t, url).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	locked := waits(t, t.Context(), c, next, 1)
	// The lock is free, and the one who waits has not been woken.
	execute(t, url, "UPDATE locker_locks SET owner = '' WHERE name = $1", []byte(prefixOf(t)+":x"))
	_, err := claims.Take(t.Context(), d, driver.Request{Name: prefixOf(t) + ":x", TTL: time.Minute})
	require.ErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, await(t, locked), "it looks by itself")
	require.NoError(t, next.Unlock(t.Context()))
}

// A waiter whose process has died counts for 5 s.
func TestQueue_theDeadArePassedOver(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	c := newClient(t, url)
	m, next := c.Mutex("x"), newClient(t, url).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	execute(t, url, "INSERT INTO locker_locks_clients VALUES ('somebody', clock_timestamp() + interval '5 s')")
	execute(t, url, "INSERT INTO locker_locks_waiters SELECT 'somebody who has died...', key, 0, 60000000, '' FROM locker_locks WHERE name = $1", []byte(prefixOf(t)+":x"))
	locked := waits(t, t.Context(), c, next, 2)
	require.NoError(t, m.Unlock(t.Context()))
	require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, await(t, locked))
	require.NoError(t, next.Unlock(t.Context()))
	state, err := c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	assert.Empty(t, state.Waiters)
}

// The connection that listens is cut: waiters look, and there is another soon.
func TestQueue_theConnectionThatListensIsLost(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	c := newClient(t, s.URL())
	m, next := c.Mutex("x"), newClient(t, s.URL()).Mutex("x")
	for range 3 {
		require.NoError(t, m.Lock(t.Context()))
		locked := waits(t, t.Context(), c, next, 1)
		eventually(t, "it listens", func() bool { return value[bool](t, s.URL(), notified) })
		execute(t, s.URL(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, await(t, locked))
		require.NoError(t, next.Unlock(t.Context()))
	}
}

// Statements of others may make ours fail under the stricter isolation levels, and are run again
// then.
func TestQueue_isolationLevels(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		s := testserver.Postgres(t)
		execute(t, s.URL(), "ALTER ROLE postgres SET default_transaction_isolation = '"+level+"'")
		var all []<-chan error
		counted, ctx := 0, withTimeout(t, 2*time.Minute)
		for range 8 {
			m := newClient(t, s.URL()).Mutex("x")
			all = append(all, async(func() error {
				for range 10 {
					if err := m.Lock(ctx); err != nil {
						return err
					}
					counted++
					if err := m.Unlock(t.Context()); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		for _, done := range all {
			require.NoError(t, <-done, level)
		}
		assert.Equal(t, 80, counted, level)
	}
}

// A program unlocks, and ends. Whoever waits has been told, also if the next thing that the Client
// does is to close.
func TestQueue_theHolderClosesAfterItsUnlock(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	next := newClient(t, url).Mutex("x")
	for range 10 {
		c := newClient(t, url)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		locked := waits(t, t.Context(), c, next, 1)
		state, err := c.Inspect(t.Context(), "x")
		require.NoError(t, err)
		waiter := state.Waiters[0].ID
		conn := session(t, url)
		_, err = conn.Exec(t.Context(), "LISTEN locker_"+waiter[:16])
		require.NoError(t, err)
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, c.Close())
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		for told := ""; told != waiter; { // else the listener has asked whether it hears
			n, err := conn.WaitForNotification(ctx)
			require.NoError(t, err)
			told = n.Payload
		}
		cancel()
		require.NoError(t, conn.Close(t.Context()))
		require.NoError(t, await(t, locked))
		require.NoError(t, next.Unlock(t.Context()))
	}
}
