package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/sql/postgres"
)

// The rights that docs/backends/postgres.md has people grant, on a table that they have made, are
// enough; without them Lock fails at once.
func TestRights(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	execute(t, s.URL(), "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
	execute(t, s.URL(), "CREATE SCHEMA jobs")
	script(t, s.URL(), postgres.Schema("jobs.locks"))
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
	assert.Len(t, warnings, 1, "fsync is off")

	// Where there is no table, and it may not be made, the error says so.
	err = openURL(t, url+"&table=jobs.others").Mutex("x").Lock(t.Context())
	require.ErrorContains(t, err, "permission denied for schema jobs")
}

// Another user, who may make operators in a schema of the search_path, has none of them run.
func TestRights_ofOperatorsThatOthersHaveMade(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	unlock(t, held(t, openURL(t, s.URL()), 1)...)
	script(t, s.URL(), `CREATE ROLE mallory; GRANT CREATE ON SCHEMA public TO mallory; SET ROLE mallory;
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
	script(t, s.URL(), postgres.Schema(""))
	unlock(t, held(t, openURL(t, s.URL()), 1)...)
	script(t, s.URL(), `CREATE ROLE app LOGIN; ALTER TABLE locker_locks ENABLE ROW LEVEL SECURITY;
		CREATE POLICY hidden ON locker_locks FOR SELECT USING (key <> '');
		CREATE POLICY rows ON locker_locks FOR INSERT WITH CHECK (true);`)
	execute(t, s.URL(), strings.ReplaceAll(pageLine(t, "GRANT SELECT"), "jobs.", "locker_"))
	app := openURL(t, strings.Replace(s.URL(), "postgres@", "app@", 1))
	require.ErrorContains(t, app.Mutex("x").Lock(withTimeout(t, 20*time.Second)), "row")
}

// Whoever may connect can take any advisory lock for ever.
func TestLock_besideAdvisoryLocks(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	execute(t, s.URL(), "SELECT pg_advisory_lock(hashtext('locker'))")
	var all []<-chan error
	for i := range 8 { // all make the tables
		m := openURL(t, s.URL()).Mutex(fmt.Sprint("x", i))
		all = append(all, async(func() error { return m.Lock(withTimeout(t, 20*time.Second)) }))
	}
	for _, done := range all {
		require.NoError(t, await(t, done))
	}
}
