package goose_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
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
	"github.com/go-locker/locker/fence/sqlfence"
	lockergoose "github.com/go-locker/locker/integrations/goose"
	"github.com/go-locker/locker/internal/test/freshdb"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
)

// Goose's own test of a Locker.
func TestGoose_ofFiveProvidersOneMigrates(t *testing.T) {
	freshdb.Each(t, func(t *testing.T, d freshdb.Database) {
		locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
			t.Helper()
			return newInstance(t, d).fenced(t, second(noPause))
		})
		newInstance(t, d).assertState(t, 1, 1)
	})
}

func TestUnlock_releasesThoughItsContextHasEnded(t *testing.T) {
	t.Parallel()
	d := freshdb.Of[sqlfence.SQLite](t)
	first, second := lockergoose.New(newInstance(t, d).mutex), newInstance(t, d).mutex
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

// A newer holder comes in the middle of a Down, or before, and the older knows nothing of a loss.
func TestStore_downAndApplyVersionAreFenced(t *testing.T) {
	freshdb.Each(t, func(t *testing.T, d freshdb.Database) {
		i := newInstance(t, d)
		p := i.fenced(t, second(noPause))
		_, err := p.Up(t.Context())
		require.NoError(t, err)
		_, err = p.Down(t.Context())
		require.NoError(t, err)
		i.assertState(t, 0, 0)
		_, err = p.ApplyVersion(t.Context(), 2, true)
		require.NoError(t, err)

		overtaken := func(ctx context.Context, tx *sql.Tx) error {
			i.newerHolder(t)
			return add(ctx, tx, -1)
		}
		_, err = i.fenced(t, goose.WithGoMigrations(goose.NewGoMigration(2, nil, &goose.GoFunc{RunTx: overtaken}))).Down(t.Context())
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorContains(t, err, "undo version 2", "it is rolled back")
		_, err = p.Down(t.Context())
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorContains(t, err, "begin as the holder", "before it reads the versions")
		_, err = p.ApplyVersion(t.Context(), 2, false)
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorContains(t, err, "begin as the holder", "before it reads the version")
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
	freshdb.Each(t, func(t *testing.T, d freshdb.Database) {
		i := newInstance(t, d)
		_, err := i.provider(t, goose.DialectCustom, goose.WithStore(i.store(t))).Up(t.Context())
		require.ErrorIs(t, err, locker.ErrNotHeld)
		require.ErrorContains(t, err, "apply version 1")
		require.ErrorContains(t, err, "goose.WithLocker")
		require.Error(t, i.db.QueryRowContext(t.Context(), "SELECT n FROM counter").Scan(new(int)), "it was rolled back")
	})
}

// Goose asks for its table in the catalog of the database, where it knows how. Without that it looks for a row, which is an error in
// the database's log.
func TestStore_looksForItsTableAsGoosesOwnDoes(t *testing.T) {
	freshdb.Each(t, func(t *testing.T, d freshdb.Database) {
		i := newInstance(t, d)
		store := i.store(t)
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

func TestNewStore_refusesADatabaseThatCannotRollBack(t *testing.T) {
	i := newInstance(t, freshdb.Of[sqlfence.SQLite](t))
	_, err := lockergoose.NewStore(i.mutex, goose.DialectMySQL, goose.DefaultTablename)
	require.ErrorContains(t, err, `"mysql"`)
	_, err = lockergoose.NewStore(i.mutex, goose.DialectSQLite3, "")
	require.ErrorContains(t, err, "table name")
}

func TestContext_endsWithItsParentAndNotWithAnUnlock(t *testing.T) {
	i := newInstance(t, freshdb.Of[sqlfence.SQLite](t))
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

// A holder is paused in its second migration until its hold has expired, and goes on when another
// has migrated. Goose's interfaces for locks cannot stop it: it notices its loss at the end.
func TestPaused_inItsSecondMigration(t *testing.T) {
	const (
		plain       = "goose's own Store"
		fenced      = "a Store with a fence"
		withContext = "the same, and a context that ends with the loss"
	)
	for _, c := range []struct {
		how             string
		two             bool // writes without a transaction, and it stands still between them
		added, recorded int
	}{
		{plain, false, 2, 2},
		{fenced, false, 1, 1},
		{fenced, true, 202, 1},      // it has done all of it, both have
		{withContext, true, 102, 1}, // its second statement was not sent
	} {
		t.Run(fmt.Sprint(c.how, c.two), func(t *testing.T) {
			freshdb.Each(t, func(t *testing.T, d freshdb.Database) {
				holder := newInstance(t, d, locker.WithTTL(time.Second), locker.WithoutRenewal())
				provider := func(i instance, pause func(context.Context) error) *goose.Provider {
					up := second(pause)
					if c.two {
						up = twoWrites(pause)
					}
					if c.how == plain {
						return i.provider(t, i.dialect, up, goose.WithLocker(lockergoose.New(i.mutex)))
					}
					return i.fenced(t, up)
				}
				ctx := t.Context()
				if c.how == withContext {
					own, cancel := lockergoose.Context(ctx)
					defer cancel()
					ctx = own
				}
				_, err := provider(holder, func(ctx context.Context) error {
					over := holder.mutex.Hold().Lost()
					if c.how == withContext {
						over = ctx.Done()
					}
					<-over
					_, err := provider(newInstance(t, d), noPause).Up(t.Context())
					return err
				}).Up(ctx)
				require.ErrorIs(t, err, locker.ErrLost)
				assert.Equal(t, c.how == withContext, context.Cause(ctx) != nil)
				holder.assertState(t, c.added, c.recorded)
			})
		})
	}
}

// The token of the paused holder was admitted, so its successor has to wait for its commit before
// it reads the versions.
func TestPaused_beforeItsCommitItIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			d := freshdb.Of[sqlfence.Postgres](t)
			d.DSN += "&default_transaction_isolation=" + url.PathEscape(level)
			holder := newInstance(t, d, locker.WithTTL(time.Second), locker.WithoutRenewal())
			other := newInstance(t, d)
			var done <-chan error
			store := pausingStore{holder.store(t), func() {
				<-holder.mutex.Hold().Lost()
				done = testwait.Go(func() error { _, err := other.fenced(t, second(noPause)).Up(t.Context()); return err })
				patience.Until(t, "the other waits for it", func() bool {
					var n int
					require.NoError(t, other.db.QueryRowContext(t.Context(),
						"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&n))
					return n > 0
				})
			}}
			_, err := holder.fencedBy(t, store, second(noPause)).Up(t.Context())
			require.ErrorIs(t, err, locker.ErrLost, "from Unlock")
			require.NoError(t, patience.Result(t, done))
			other.assertState(t, 1, 1)
		})
	}
}

// pausingStore stands still when the second version is recorded, and not yet committed.
type pausingStore struct {
	database.Store

	pause func()
}

func (s pausingStore) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	err := s.Store.Insert(ctx, db, req)
	if err == nil && req.Version == 2 {
		s.pause()
	}
	return err
}

func noPause(context.Context) error { return nil }

// twoWrites is a second migration without a transaction. It adds 1, and then 100.
func twoWrites(between func(context.Context) error) goose.ProviderOption {
	up := func(ctx context.Context, db *sql.DB) error {
		if err := add(ctx, db, 1); err != nil {
			return err
		}
		if err := between(ctx); err != nil {
			return err
		}
		return add(ctx, db, 100)
	}
	return goose.WithGoMigrations(goose.NewGoMigration(2, &goose.GoFunc{RunDB: up}, nil))
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Tests(m)) }

const patience = testwait.Patience(time.Minute)

// dialects are goose's names.
var dialects = map[sqlfence.Dialect]goose.Dialect{sqlfence.Postgres: goose.DialectPostgres, sqlfence.SQLite: goose.DialectSQLite3}

// instance is what a program of many instances has: connections of its own.
type instance struct {
	dialect goose.Dialect
	mutex   *locker.Mutex
	db      *sql.DB
}

func newInstance(t testing.TB, d freshdb.Database, opts ...locker.Option) instance {
	t.Helper()
	client := testwait.Closed(locker.Open(t.Context(), d.Locks, opts...))(t)
	return instance{dialects[d.Dialect], client.Mutex("migrate"), d.Open(t)}
}

// fenced has a Store with a fence.
func (i instance) fenced(t testing.TB, opts ...goose.ProviderOption) *goose.Provider {
	t.Helper()
	return i.fencedBy(t, i.store(t), opts...)
}

func (i instance) fencedBy(t testing.TB, store database.Store, opts ...goose.ProviderOption) *goose.Provider {
	t.Helper()
	return i.provider(t, goose.DialectCustom, append(opts, goose.WithStore(store), goose.WithLocker(lockergoose.New(i.mutex)))...)
}

func (i instance) store(t testing.TB) database.Store {
	t.Helper()
	store, err := lockergoose.NewStore(i.mutex, i.dialect, goose.DefaultTablename)
	require.NoError(t, err)
	return store
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

// second is a migration in a transaction: it adds 1, after a pause.
func second(pause func(context.Context) error) goose.ProviderOption {
	up := func(ctx context.Context, tx *sql.Tx) error {
		if err := pause(ctx); err != nil {
			return err
		}
		return add(ctx, tx, 1)
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
