package mysql_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/mysql"
)

// The rights that docs/backends/mysql.md has people grant, on tables that they have made, are
// enough; without them Lock fails at once.
func TestRights(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	admin := withGrants(t, pool(t, s.Addr(), "multiStatements=true"))
	require.Len(t, mysql.Schema("jobs.locks"), 3)
	for _, statement := range mysql.Schema("jobs.locks") {
		admin(statement)
	}
	admin("CREATE USER app")
	url := strings.Replace(s.URL(), "root@", "app@", 1)
	url = strings.Replace(url, "/locker", "/jobs?table=jobs.locks", 1)
	admin("GRANT SELECT ON jobs.locks TO app")
	err := newClient(t, url).Mutex("x").Lock(t.Context())
	require.ErrorContains(t, err, "denied")
	require.NotErrorIs(t, err, locker.ErrHeld)

	admin("GRANT SELECT, INSERT, UPDATE, DELETE ON jobs.locks TO app")
	admin("GRANT SELECT, INSERT, UPDATE, DELETE ON jobs.locks_waiters TO app")
	harness.Rights(t, func() *locker.Client { return newClient(t, url) })
	warnings, err := newClient(t, url).Warnings(t.Context())
	require.NoError(t, err)
	assert.Len(t, warnings, 1, "innodb_flush_log_at_trx_commit is 0")

	// Where there is no table, and it may not be made, the error says so.
	err = newClient(t, strings.Replace(url, "jobs.locks", "jobs.others", 1)).Mutex("x").Lock(t.Context())
	require.ErrorContains(t, err, "denied")
}

// withGrants makes the tables of users that a test's server has not, and a database jobs. It
// returns what executes a statement as one who may do everything.
func withGrants(t *testing.T, db *sql.DB) (execute func(statement string)) {
	t.Helper()
	c, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	var dir string
	require.NoError(t, c.QueryRowContext(t.Context(), "SELECT @@character_sets_dir").Scan(&dir))
	tables, err := os.ReadFile(filepath.Join(dir, "..", "mysql_system_tables.sql")) //nolint:gosec // of the server that runs here
	require.NoError(t, err)
	execute = func(statement string) {
		t.Helper()
		_, err := c.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	execute("CREATE DATABASE jobs; CREATE DATABASE mysql; USE mysql;" + string(tables) + "FLUSH PRIVILEGES; SET sql_mode = DEFAULT; USE jobs")
	return execute
}
