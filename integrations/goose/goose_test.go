package goose_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	lockergoose "github.com/go-locker/locker/integrations/goose"
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

func TestGoose_ofFiveLockersOneLocks(t *testing.T) {
	t.Parallel()
	d, url := databases["SQLite"](t), memory()
	locktesting.TestConcurrentLocking(t, d.open(t), func(t *testing.T) lock.Locker {
		t.Helper()
		return lockergoose.New(newInstance(t, url, d).mutex)
	}, time.Second)
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
