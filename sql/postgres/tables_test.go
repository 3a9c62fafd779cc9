package postgres_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Holds that are due together are renewed by one statement, in a table of a schema as in any other.
func TestRenewal_inATableWithASchema(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	execute(t, url, "CREATE SCHEMA IF NOT EXISTS renewed")
	const ttl = 3 * time.Second
	c := openURL(t, url+"&table=renewed.locks", locker.WithTTL(ttl))
	ms := held(t, c, 3)
	stillHeld(t, ttl, ms...)
	unlock(t, ms...)
}

// Two users whose search_path is not the same have the same lock, and not a table each.
func TestTable_isTheSameForEverySearchPath(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	execute(t, s.URL(), "CREATE SCHEMA other")
	execute(t, s.URL(), "ALTER ROLE postgres SET search_path = other, public")
	first := openURL(t, s.URL()).Mutex("x")
	require.NoError(t, first.Lock(t.Context()))
	execute(t, s.URL(), "ALTER ROLE postgres RESET search_path")
	require.ErrorIs(t, openURL(t, s.URL()).Mutex("x").TryLock(t.Context()), locker.ErrHeld)
	unlock(t, first)
}

// What docs/backends/postgres.md has people type frees the lock, and its holder's Unlock says that
// it is lost.
func TestFreedByHand_theHolderHearsOfIt(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	c := openURL(t, s.URL())
	m := held(t, c, 1)[0]
	execute(t, s.URL(), pageLine(t, "SELECT ended FROM"))
	next := openURL(t, s.URL()).Mutex("hold0")
	require.NoError(t, next.TryLock(t.Context()))
	unlock(t, next)
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
}

// pageLine returns the line of the backend's page that begins so.
func pageLine(t *testing.T, begins string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/backends/postgres.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, begins) {
			return strings.Replace(line, "orders/42", "hold0", 1)
		}
	}
	t.Fatalf("no line of the page begins with %q", begins)
	return ""
}

// A table that somebody has dropped is made again when it is needed.
func TestLock_afterATableWasDropped(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	c, other := openURL(t, s.URL()), openURL(t, s.URL())
	m, next := c.Mutex("x"), other.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	execute(t, s.URL(), "DROP TABLE locker_locks_waiters")
	locked := async(func() error { return next.Lock(t.Context()) })
	eventually(t, "it waits", func() bool {
		return value[bool](t, s.URL(), "SELECT to_regclass('locker_locks_waiters') IS NOT NULL") && waiters(t, c, "x") == 1
	})
	unlock(t, m)
	require.NoError(t, await(t, locked))
	unlock(t, next)
}

// Whoever makes the table of the locks a logged one hears of it: a standby would show old rows as
// whole.
func TestTable_thatIsLogged(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	unlock(t, held(t, openURL(t, s.URL()), 1)...)
	execute(t, s.URL(), "ALTER TABLE locker_locks SET LOGGED")
	require.ErrorContains(t, openURL(t, s.URL()).Mutex("x").Lock(t.Context()), "locker_locks is a logged table")
	execute(t, s.URL(), "ALTER TABLE locker_locks SET UNLOGGED")
	execute(t, s.URL(), "ALTER TABLE locker_locks_ttls SET UNLOGGED")
	require.ErrorContains(t, openURL(t, s.URL()).Mutex("x").Lock(t.Context()), "locker_locks_ttls is an unlogged table")
}
