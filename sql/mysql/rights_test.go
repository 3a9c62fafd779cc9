package mysql

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"

	"github.com/go-locker/locker/internal/test/testwait"
)

// The rights that docs/backends/mysql.md has people grant, on tables that they have made, are
// enough; without them Lock fails at once.
func TestRights(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	admin := withGrants(t, pool(t, s.Addr(), "multiStatements=true"))
	require.Len(t, Schema("jobs.locks"), 3)
	for _, statement := range Schema("jobs.locks") {
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

// Names and metadata are bytes, whatever character set the server or the pool says they are in: in
// some, a byte and a backslash are one character, and a quote behind it ends the string.
func FuzzNames(f *testing.F) {
	s := testserver.MariaDB(f)
	admin := withGrants(f, pool(f, s.Addr(), "multiStatements=true"))
	admin("CREATE USER app")
	admin("GRANT ALL ON jobs.* TO app")
	var drivers []driver.Driver
	for _, charset := range []string{"utf8mb4", "utf8mb3", "gbk", "gb2312", "sjis", "cp932", "big5", "euckr", "ujis", "eucjpms"} {
		table := "jobs." + charset
		u, err := driver.ParseURL("mysql://app@" + s.Addr() + "/jobs?table=" + table)
		require.NoError(f, err)
		byURL, err := driver.Open(f.Context(), u)
		require.NoError(f, err)
		db, err := sql.Open("mysql", "app@tcp("+s.Addr()+")/jobs?interpolateParams=true&character_set_client="+charset)
		require.NoError(f, err)
		f.Cleanup(func() { _ = db.Close() })
		own, err := NewDriver(db, table)
		require.NoError(f, err)
		admin("SET GLOBAL init_connect = 'SET NAMES " + charset + "'")
		for _, d := range []driver.Driver{byURL, own} {
			f.Cleanup(func() { _ = d.Close() })
			_, err := d.Claim(driver.Request{Name: "another's", TTL: time.Hour}).Ask(f.Context()) // connects
			if d == own {
				require.ErrorIs(f, err, driver.ErrHeld)
			} else {
				require.NoError(f, err)
			}
			drivers = append(drivers, d)
		}
	}
	for last := 0x80; last <= 0xbf; last += 9 {
		two, three := string([]byte{0xc3, byte(last)}), string([]byte{0xe4, 0xb8, byte(last)})
		f.Add(two+"' OR 1=1 -- "+three+"' OR 1=1 -- ", string([]byte{byte(last), '\'', ' '}))
		f.Add(three+"', token = 9223372036854775807 -- ", "\\"+two)
	}
	f.Fuzz(func(t *testing.T, name, metadata string) {
		for _, d := range drivers {
			c := d.Claim(driver.Request{Name: "n" + name, Metadata: metadata, TTL: time.Minute})
			_, err := c.Ask(t.Context())
			require.NoError(t, err)
			state, err := d.(driver.Operator).Inspect(t.Context(), "n"+name)
			require.NoError(t, err)
			assert.Equal(t, metadata, state.Holder.Metadata)
			page, err := d.(driver.Operator).List("n" + name)(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []string{"n" + name}, page.Names)
			require.NoError(t, c.Release(t.Context()))
			state, err = d.(driver.Operator).Inspect(t.Context(), "another's")
			require.NoError(t, err)
			assert.True(t, state.Held)
		}
	})
}

// withGrants makes the tables of users that a test's server has not, and a database jobs. It
// returns what executes a statement as one who may do everything.
func withGrants(t testing.TB, db *sql.DB) (execute func(statement string)) {
	t.Helper()
	c := testwait.Closed(db.Conn(t.Context()))(t)
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
