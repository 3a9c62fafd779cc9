package postgres

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

// The rights that docs/backends/postgres.md has people grant, on a table that they have made, are
// enough; without them Lock fails at once.
func TestRights(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	execute(t, s.URL(), "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
	execute(t, s.URL(), "CREATE SCHEMA jobs")
	execute(t, s.URL(), Schema("jobs.locks"))
	execute(t, s.URL(), "CREATE ROLE app LOGIN")
	execute(t, s.URL(), "GRANT USAGE ON SCHEMA jobs TO app")
	url := strings.Replace(s.URL(), "postgres@", "app@", 1)
	open := func() *locker.Client { return openURL(t, url+"&table=jobs.locks") }
	err := open().Mutex("x").Lock(t.Context())
	require.ErrorContains(t, err, "permission denied")

	execute(t, s.URL(), pageLine(t, "GRANT SELECT"))
	err = open().Mutex("x").Lock(t.Context())
	require.ErrorContains(t, err, "permission denied for function")
	execute(t, s.URL(), pageLine(t, "GRANT EXECUTE"))
	harness.Rights(t, open)
	warnings, err := open().Warnings(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "fsync=off")

	// Where there is no table, and it may not be made, the error says so.
	err = openURL(t, url+"&table=jobs.others").Mutex("x").Lock(t.Context())
	require.ErrorContains(t, err, "permission denied for schema jobs")
}

// Another user, who may make operators in a schema of the search_path, has none of them run.
func TestRights_ofOperatorsThatOthersHaveMade(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	unlock(t, held(t, openURL(t, s.URL()), 1)...)
	execute(t, s.URL(), `CREATE ROLE mallory; GRANT CREATE ON SCHEMA public TO mallory; SET ROLE mallory;
		CREATE FUNCTION public.run(bigint, interval) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN RAISE 'run by %', current_user; END $$;
		CREATE FUNCTION public.run(numeric, integer) RETURNS numeric LANGUAGE plpgsql AS $$ BEGIN RAISE 'run by %', current_user; END $$;
		CREATE FUNCTION public.run(interval, integer) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN RAISE 'run by %', current_user; END $$;
		CREATE OPERATOR public.* (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = public.run);
		CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.run);
		CREATE OPERATOR public./ (LEFTARG = interval, RIGHTARG = integer, FUNCTION = public.run);`)
	c, other := openURL(t, s.URL()), openURL(t, s.URL())
	m, next := c.Mutex("x"), other.Mutex("x")
	for range 2 { // a take of what has no row, and of what has one
		require.NoError(t, m.Lock(t.Context()))
		locked := waits(t, t.Context(), c, next, 1)
		require.NoError(t, m.Extend(t.Context()))
		unlock(t, m)
		require.NoError(t, await(t, locked))
		unlock(t, next)
	}
	require.NoError(t, m.Lock(t.Context()))
	execute(t, s.URL(), "TRUNCATE locker_locks")
	require.NoError(t, m.Extend(t.Context()), "it reclaims")
	state, err := c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, c.ForceRelease(t.Context(), "x", state))
}

// Row level security that hides the row of the era, or what was written, is an error, and no loop
// without end at the server.
func TestRights_rowLevelSecurity(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	execute(t, s.URL(), Schema(""))
	unlock(t, held(t, openURL(t, s.URL()), 1)...)
	execute(t, s.URL(), `CREATE ROLE app LOGIN; ALTER TABLE locker_locks ENABLE ROW LEVEL SECURITY;
		CREATE POLICY hidden ON locker_locks FOR SELECT USING (key <> '');
		CREATE POLICY rows ON locker_locks FOR INSERT WITH CHECK (true);`)
	execute(t, s.URL(), strings.ReplaceAll(pageLine(t, "GRANT SELECT"), "jobs.", "locker_"))
	app := openURL(t, strings.Replace(s.URL(), "postgres@", "app@", 1))
	require.ErrorContains(t, app.Mutex("x").Lock(withTimeout(t, 20*time.Second)), "row")
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
	url := Database(t)
	c := openURL(t, url)
	m := held(t, c, 1)[0]
	execute(t, url, pageLine(t, "SELECT ended FROM"))
	next := openURL(t, url).Mutex("hold0")
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

// A table that somebody has dropped is made again when it is needed. One that somebody has put in
// the place of another is used, though the functions are the same.
func TestLock_afterATableWasDropped(t *testing.T) {
	t.Parallel()
	url := Database(t)
	c, other := openURL(t, url), openURL(t, url)
	m, next := c.Mutex("x"), other.Mutex("x")
	for _, change := range []string{
		"DROP TABLE locker_locks_waiters",
		`BEGIN; ALTER TABLE locker_locks RENAME TO old; CREATE UNLOGGED TABLE locker_locks (LIKE old INCLUDING ALL);
			INSERT INTO locker_locks SELECT * FROM old; DROP TABLE old; COMMIT`,
	} {
		require.NoError(t, m.Lock(t.Context()))
		execute(t, url, change)
		locked := async(func() error { return next.Lock(t.Context()) })
		eventually(t, "it waits", func() bool {
			return value[bool](t, url, "SELECT to_regclass('locker_locks_waiters') IS NOT NULL") && waiters(t, c, "x") == 1
		})
		unlock(t, m)
		require.NoError(t, await(t, locked))
		unlock(t, next)
	}
}

// Whoever makes the table of the locks a logged one hears of it: a standby would show old rows as
// whole.
func TestTable_thatIsLogged(t *testing.T) {
	t.Parallel()
	url := Database(t)
	unlock(t, held(t, openURL(t, url), 1)...)
	execute(t, url, "ALTER TABLE locker_locks SET LOGGED")
	require.ErrorContains(t, openURL(t, url).Mutex("x").Lock(t.Context()), "locker_locks is a logged table")
	execute(t, url, "ALTER TABLE locker_locks SET UNLOGGED")
	execute(t, url, "ALTER TABLE locker_locks_ttls SET UNLOGGED")
	require.ErrorContains(t, openURL(t, url).Mutex("x").Lock(t.Context()), "locker_locks_ttls is an unlogged table")
}
