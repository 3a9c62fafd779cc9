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
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock/locktesting"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	lockergoose "github.com/go-locker/locker/integrations/goose"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/redis"
)

// Goose's own tests of a Locker: there are these two.
func TestGoose_ofFiveProvidersOneMigrates(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
			t.Helper()
			return newInstance(t, lock, d).fenced(t, second(nil, nil))
		})
		newInstance(t, lock, d).assertState(t, 1, 1)
	})
}

func TestSessionLocker_isTheSameLock(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
			t.Helper()
			i := newInstance(t, lock, d)
			i.db.SetMaxOpenConns(1) // goose has the connection while it locks
			store, err := lockergoose.NewStore(i.mutex, d.dialect, goose.DefaultTablename)
			require.NoError(t, err)
			return i.provider(t, goose.DialectCustom, goose.WithStore(store), goose.WithSessionLocker(lockergoose.New(i.mutex)))
		})
	})
}

func TestUnlock_releasesThoughItsContextHasEnded(t *testing.T) {
	t.Parallel()
	url, d := memory(), databases["SQLite"](t)
	first, second := lockergoose.New(newInstance(t, url, d).mutex), newInstance(t, url, d).mutex
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, unlock := range []func() error{
		func() error { return first.Unlock(ctx, nil) },
		func() error { return first.SessionUnlock(ctx, nil) },
	} {
		require.NoError(t, first.SessionLock(t.Context(), nil))
		require.ErrorIs(t, second.TryLock(t.Context()), locker.ErrHeld)
		cancel()
		require.NoError(t, unlock())
		require.NoError(t, second.TryLock(t.Context()), "it is free at once")
		require.NoError(t, second.Unlock(t.Context()))
	}
}

func TestStore_downAndApplyVersionAreFenced(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		i := newInstance(t, lock, d)
		p := i.fenced(t, second(nil, nil))
		_, err := p.Up(t.Context())
		require.NoError(t, err)
		_, err = p.Down(t.Context())
		require.NoError(t, err)
		i.assertState(t, 0, 0)
		_, err = p.ApplyVersion(t.Context(), 2, true)
		require.NoError(t, err)

		i.newerHolder(t)
		_, err = p.Down(t.Context())
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorContains(t, err, "begin as the holder", "before it reads the versions")
		_, err = p.ApplyVersion(t.Context(), 2, false)
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorContains(t, err, "begin as the holder", "before it reads the version")
		i.assertState(t, 1, 1)
	})
}

// A newer holder comes in the middle of a Down, whose own holder knows nothing of a loss.
func TestStore_aDownThatWasOvertakenIsRolledBack(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		i := newInstance(t, lock, d)
		_, err := i.fenced(t, second(nil, nil)).Up(t.Context())
		require.NoError(t, err)
		down := func(ctx context.Context, tx *sql.Tx) error {
			i.newerHolder(t)
			return add(ctx, tx, -1)
		}
		p := i.fenced(t, goose.WithGoMigrations(goose.NewGoMigration(2, nil, &goose.GoFunc{RunTx: down})))
		_, err = p.Down(t.Context())
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorContains(t, err, "undo version 2")
		i.assertState(t, 1, 1)
	})
}

// newerHolder has the database see a token that is larger than all of the lock.
func (i instance) newerHolder(t testing.TB) {
	t.Helper()
	_, err := i.db.ExecContext(t.Context(), "UPDATE fencing_tokens SET token = token + 1000000000000")
	require.NoError(t, err)
}

// A store whose Mutex nobody locks refuses, so that a Provider without the Lock is noticed at its first migration.
func TestStore_refusesWithoutTheLock(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		i := newInstance(t, lock, d)
		store, err := lockergoose.NewStore(i.mutex, i.dialect, goose.DefaultTablename)
		require.NoError(t, err)
		p := i.provider(t, goose.DialectCustom, goose.WithStore(store))
		_, err = p.Up(t.Context())
		require.ErrorIs(t, err, locker.ErrNotHeld)
		require.ErrorContains(t, err, "apply version 1")
		require.ErrorContains(t, err, "goose.WithLocker")
		require.Error(t, i.db.QueryRowContext(t.Context(), "SELECT n FROM counter").Scan(new(int)), "it was rolled back")
	})
}

// Goose asks for its table in the catalog of the database, where it knows how. Without that it looks for a row, which is an error in
// the database's log.
func TestStore_looksForItsTableAsGoosesOwnDoes(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		i := newInstance(t, lock, d)
		store, err := lockergoose.NewStore(i.mutex, i.dialect, goose.DefaultTablename)
		require.NoError(t, err)
		own, err := database.NewStore(i.dialect, goose.DefaultTablename)
		require.NoError(t, err)
		for range 2 {
			exists, err := store.(database.StoreExtender).TableExists(t.Context(), i.db)
			want, wantErr := own.(database.StoreExtender).TableExists(t.Context(), i.db)
			assert.Equal(t, wantErr, err, "of some databases goose does not ask")
			assert.Equal(t, want, exists)
			_, err = i.fenced(t).Up(t.Context())
			require.NoError(t, err)
		}
	})
}

// With nothing to do goose takes no lock: a program starts though the lock's server is unreachable.
func TestUp_withNothingToDoTakesNoLock(t *testing.T) {
	i := newInstance(t, memory(), databases["SQLite"](t))
	_, err := i.fenced(t).Up(t.Context())
	require.NoError(t, err)
	require.NoError(t, i.mutex.Lock(t.Context()))
	applied, err := i.fenced(t).Up(t.Context())
	require.NoError(t, err)
	assert.Empty(t, applied)
}

func TestNewStore_refusesADatabaseThatCannotRollBack(t *testing.T) {
	i := newInstance(t, memory(), databases["SQLite"](t))
	_, err := lockergoose.NewStore(i.mutex, goose.DialectMySQL, goose.DefaultTablename)
	require.ErrorContains(t, err, `"mysql"`)
	_, err = lockergoose.NewStore(i.mutex, goose.DialectSQLite3, "")
	require.ErrorContains(t, err, "table name")
}

func TestContext_endsWithItsParentAndNotWithAnUnlock(t *testing.T) {
	i := newInstance(t, memory(), databases["SQLite"](t))
	parent, end := context.WithCancel(t.Context())
	ctx, cancel := lockergoose.Context(parent)
	defer cancel()
	l := lockergoose.New(i.mutex)
	for range 2 {
		require.NoError(t, l.Lock(ctx, nil))
		require.NoError(t, l.Unlock(context.WithoutCancel(ctx), nil))
		require.NoError(t, ctx.Err())
	}
	end()
	require.ErrorIs(t, context.Cause(ctx), context.Canceled)

	ctx, cancel = lockergoose.Context(t.Context())
	cancel()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}

// A migration under way ends with the loss, and leaves nothing.
func TestLoss_endsTheContextOfTheMigration(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		holder := newInstance(t, lock, d, locker.WithTTL(5*time.Second), locker.WithoutRenewal())
		began := false
		p := holder.fenced(t, second(nil, func(ctx context.Context) error {
			began = true
			<-ctx.Done() // as a long statement would
			return context.Cause(ctx)
		}))
		ctx, cancel := lockergoose.Context(t.Context())
		defer cancel()
		_, err := p.Up(ctx)
		require.ErrorIs(t, err, locker.ErrLost)
		require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		require.True(t, began)
		holder.assertState(t, 0, 0)

		applied, err := newInstance(t, lock, d).fenced(t, second(nil, nil)).Up(t.Context())
		require.NoError(t, err)
		assert.Len(t, applied, 1)
	})
}

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
