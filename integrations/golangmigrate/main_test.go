package golangmigrate_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/integrations/golangmigrate"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/postgres"
	_ "github.com/go-locker/locker/redis"
)

func TestMain(m *testing.M) {
	child.Serve()
	// The library reads the migrations that follow one that fails, and nobody takes them.
	goleak.VerifyTestMain(testserver.Tests(m), goleak.IgnoreAnyFunction("github.com/golang-migrate/migrate/v4.(*Migration).Buffer"))
}

const patience = testwait.Patience(time.Minute)

var spaces atomic.Int64

func space() string { return fmt.Sprintf("migrate%d", spaces.Add(1)) }

// memory returns the URL of locks that no other test has.
func memory() string { return "mem://" + space() }

// servers are those whose locks processes can share.
var servers = map[string]func(t testing.TB) string{
	"Redis":      func(t testing.TB) string { t.Helper(); return testserver.SharedRedis(t).URL() + "?" },
	"etcd":       func(t testing.TB) string { t.Helper(); return testserver.SharedEtcd(t).URL() + "?" },
	"PostgreSQL": func(t testing.TB) string { t.Helper(); return testserver.SharedPostgres(t).URL() + "&" },
}

// target is a database that no other test has.
type target struct {
	dialect golangmigrate.Dialect
	dsn     string
}

var databases = map[golangmigrate.Dialect]func(t testing.TB) target{
	golangmigrate.Postgres: func(t testing.TB) target {
		t.Helper()
		server, name := testserver.SharedPostgres(t), space()
		_, err := target{golangmigrate.Postgres, server.URL()}.open(t).ExecContext(t.Context(), "CREATE DATABASE "+name)
		require.NoError(t, err)
		u, err := url.Parse(server.URL())
		require.NoError(t, err)
		u.Path = "/" + name
		return target{golangmigrate.Postgres, u.String()}
	},
	golangmigrate.SQLite: func(t testing.TB) target {
		t.Helper()
		return target{golangmigrate.SQLite, "file:" + filepath.Join(t.TempDir(), "db") + "?_pragma=busy_timeout(5000)"}
	},
}

func (d target) open(t testing.TB) *sql.DB {
	t.Helper()
	name := map[golangmigrate.Dialect]string{golangmigrate.Postgres: "pgx/v5", golangmigrate.SQLite: "sqlite"}[d.dialect]
	db, err := sql.Open(name, d.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// inner returns migrate's own driver.
func (d target) inner(t testing.TB) database.Driver {
	t.Helper()
	var inner database.Driver
	var err error
	if d.dialect == golangmigrate.SQLite {
		inner, err = sqlite.WithInstance(d.open(t), &sqlite.Config{})
	} else {
		inner, err = pgx.WithInstance(d.open(t), &pgx.Config{})
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = inner.Close() })
	return inner
}

// each runs a test on each database. The locks are in memory.
func each(t *testing.T, test func(t *testing.T, lock string, d target)) {
	t.Helper()
	t.Parallel()
	for name, d := range databases {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			test(t, memory(), d(t))
		})
	}
}

func mutex(t testing.TB, lock string) *locker.Mutex {
	t.Helper()
	client, err := locker.Open(t.Context(), lock)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client.Mutex("migrate")
}

// fenced is a Driver with a fence over inner, plain is one without.
func fenced(t testing.TB, m *locker.Mutex, dialect golangmigrate.Dialect, inner database.Driver) *golangmigrate.Driver {
	t.Helper()
	d, err := golangmigrate.NewFenced(m, inner, dialect, "schema_migrations")
	require.NoError(t, err)
	return d
}

// migrations adds a table with 0, and then 1, and then 10.
var migrations = fstest.MapFS{
	"1_counter.up.sql":   {Data: []byte("CREATE TABLE counter (n INTEGER NOT NULL);\nINSERT INTO counter VALUES (0);\n")},
	"1_counter.down.sql": {Data: []byte("DROP TABLE counter;\n")},
	"2_add.up.sql":       {Data: []byte("UPDATE counter SET n = n + 1;\n")},
	"2_add.down.sql":     {Data: []byte("UPDATE counter SET n = n - 1;\n")},
	"3_add.up.sql":       {Data: []byte("UPDATE counter SET n = n + 10;\n")},
	"3_add.down.sql":     {Data: []byte("UPDATE counter SET n = n - 10;\n")},
}

func migrator(t testing.TB, d database.Driver, files fstest.MapFS) *migrate.Migrate {
	t.Helper()
	source, err := iofs.New(files, ".")
	require.NoError(t, err)
	m, err := migrate.NewWithInstance("iofs", source, "locked", d)
	require.NoError(t, err)
	return m
}

// assertState asserts what the migrations have added, and which version is recorded.
func assertState(t testing.TB, d target, wantN, wantVersion int, wantDirty bool) {
	t.Helper()
	var n int
	db := d.open(t)
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT n FROM counter").Scan(&n))
	assert.Equal(t, wantN, n, "added")
	version, dirty, err := d.inner(t).Version()
	require.NoError(t, err)
	assert.Equal(t, wantVersion, version, "version")
	assert.Equal(t, wantDirty, dirty, "dirty")
}

// hooked calls functions before its steps reach the database.
type hooked struct {
	database.Driver

	beforeRun     func(migration string)
	beforeVersion func(version int, dirty bool)
}

func (h hooked) Run(migration io.Reader) error {
	text, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	if h.beforeRun != nil {
		h.beforeRun(string(text))
	}
	// With a fence a version is set by Run, too.
	for version := range 4 {
		for _, dirty := range []bool{true, false} {
			if h.beforeVersion != nil && strings.Contains(string(text), fmt.Sprintf("schema_migrations (version, dirty) VALUES (%d, %t)", version, dirty)) {
				h.beforeVersion(version, dirty)
			}
		}
	}
	return h.Driver.Run(strings.NewReader(string(text)))
}

func (h hooked) SetVersion(version int, dirty bool) error {
	if h.beforeVersion != nil {
		h.beforeVersion(version, dirty)
	}
	return h.Driver.SetVersion(version, dirty)
}

// cutAt calls a function before or after one of its statements.
type cutAt struct {
	database.Driver

	cut int // 2n: before statement n, 2n+1: after it
	do  func()
}

func (c *cutAt) Run(migration io.Reader) error {
	if c.cut--; c.cut == -1 {
		c.do()
	}
	err := c.Driver.Run(migration)
	if c.cut--; c.cut == -1 {
		c.do()
	}
	return err
}

// overtake has the database see a token that is larger than all of the lock.
func overtake(ctx context.Context, t testing.TB, d target) {
	t.Helper()
	_, err := d.open(t).ExecContext(ctx, "UPDATE fencing_tokens SET token = token + 1000000000000")
	require.NoError(t, err)
}
