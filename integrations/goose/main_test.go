package goose_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/go-locker/locker"
	lockergoose "github.com/go-locker/locker/integrations/goose"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/redis"
)

func TestMain(m *testing.M) {
	child.Serve()
	goleak.VerifyTestMain(testserver.Tests(m))
}

const patience = testwait.Patience(time.Minute)

// memory returns the URL of locks that no other test has.
func memory() string { return "mem://" + space() }

// redis returns one of locks that processes can share.
func redis(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("%s?ttl=4s&prefix=%s", testserver.SharedRedis(t).URL(), space())
}

var spaces atomic.Int64

func space() string { return fmt.Sprintf("goose%d", spaces.Add(1)) }

// target is a database that no other test has.
type target struct {
	dialect     goose.Dialect
	driver, dsn string
}

var databases = map[string]func(t testing.TB) target{
	"PostgreSQL": func(t testing.TB) target {
		t.Helper()
		server, name := testserver.SharedPostgres(t), space()
		main := target{goose.DialectPostgres, "pgx", server.URL()}.open(t)
		_, err := main.ExecContext(t.Context(), "CREATE DATABASE "+name)
		require.NoError(t, err)
		u, err := url.Parse(server.URL())
		require.NoError(t, err)
		u.Path = "/" + name
		return target{goose.DialectPostgres, "pgx", u.String()}
	},
	"SQLite": func(t testing.TB) target {
		t.Helper()
		file := filepath.Join(t.TempDir(), "db")
		return target{goose.DialectSQLite3, "sqlite", "file:" + file + "?_pragma=busy_timeout(5000)"}
	},
}

func (d target) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, d.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// each runs a test on each database. The locks are in memory: the code that is tested is the same for all.
func each(t *testing.T, test func(t *testing.T, lock string, d target)) {
	t.Helper()
	on(t, func(testing.TB) string { return memory() }, test)
}

// onRedis runs a test on each database, with locks that processes can share.
func onRedis(t *testing.T, test func(t *testing.T, lock string, d target)) {
	t.Helper()
	on(t, redis, test)
}

func on(t *testing.T, lock func(testing.TB) string, test func(t *testing.T, lock string, d target)) {
	t.Helper()
	t.Parallel()
	for name, d := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, lock(t), d(t))
		})
	}
}

// instance is what a program of many instances has: connections of its own.
type instance struct {
	target

	mutex *locker.Mutex
	db    *sql.DB
}

func newInstance(t testing.TB, lock string, d target, opts ...locker.Option) instance {
	t.Helper()
	client, err := locker.Open(t.Context(), lock, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return instance{d, client.Mutex("migrate"), d.open(t)}
}

// fenced has a Store with a fence, plain does not.
func (i instance) fenced(t testing.TB, opts ...goose.ProviderOption) *goose.Provider {
	t.Helper()
	store, err := lockergoose.NewStore(i.mutex, i.dialect, goose.DefaultTablename)
	require.NoError(t, err)
	return i.provider(t, goose.DialectCustom, append(opts, goose.WithStore(store), goose.WithLocker(lockergoose.New(i.mutex)))...)
}

func (i instance) plain(t testing.TB, opts ...goose.ProviderOption) *goose.Provider {
	t.Helper()
	return i.provider(t, i.dialect, append(opts, goose.WithLocker(lockergoose.New(i.mutex)))...)
}

func (i instance) provider(t testing.TB, dialect goose.Dialect, opts ...goose.ProviderOption) *goose.Provider {
	t.Helper()
	p, err := goose.NewProvider(dialect, i.db, migrations, append(opts, goose.WithLogger(goose.NopLogger()))...)
	require.NoError(t, err)
	return p
}

// migrations has the first. The second, which adds 1, is each test's own.
var migrations = fstest.MapFS{"00001_counter.sql": {Data: []byte(`-- +goose Up
CREATE TABLE counter (n INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
-- +goose Down
DROP TABLE counter;
`)}}

// second is a migration in a transaction: it adds 1, and calls before and after, which may be nil.
func second(before, after func(context.Context) error) goose.ProviderOption {
	up := func(ctx context.Context, tx *sql.Tx) error {
		for _, step := range []func(context.Context) error{before, func(ctx context.Context) error { return add(ctx, tx, 1) }, after} {
			if step == nil {
				continue
			}
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	down := func(ctx context.Context, tx *sql.Tx) error { return add(ctx, tx, -1) }
	return goose.WithGoMigrations(goose.NewGoMigration(2, &goose.GoFunc{RunTx: up}, &goose.GoFunc{RunTx: down}))
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func add(ctx context.Context, db execer, n int) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf("UPDATE counter SET n = n + %d", n))
	return err
}

// assertState asserts how often the second migration has added 1, and how often it is recorded.
func (i instance) assertState(t testing.TB, wantAdded, wantRecorded int) {
	t.Helper()
	var added, recorded int
	ctx := t.Context()
	require.NoError(t, i.db.QueryRowContext(ctx, "SELECT n FROM counter").Scan(&added))
	require.NoError(t, i.db.QueryRowContext(ctx, "SELECT count(*) FROM goose_db_version WHERE version_id = 2").Scan(&recorded))
	assert.Equal(t, wantAdded, added, "added")
	assert.Equal(t, wantRecorded, recorded, "recorded")
}
