package golangmigrate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	dtesting "github.com/golang-migrate/migrate/v4/database/testing"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/integrations/golangmigrate"
	"github.com/go-locker/locker/internal/test/testwait"
)

// held passes migrate's tests of a driver, which run and set versions without the lock: it takes
// it.
type held struct{ *golangmigrate.Driver }

func (h held) Run(migration io.Reader) error {
	return h.under(func() error { return h.Driver.Run(migration) })
}

func (h held) SetVersion(version int, dirty bool) error {
	return h.under(func() error { return h.Driver.SetVersion(version, dirty) })
}

func (h held) Drop() error { return h.under(h.Driver.Drop) }

func (h held) under(f func() error) error {
	if err := h.Lock(); err != nil {
		return err
	}
	err := f()
	if uerr := h.Unlock(); err == nil {
		err = uerr
	}
	return err
}

func TestDriver_passesMigratesOwnTests(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		dtesting.Test(t, held{golangmigrate.New(mutex(t, lock), d.inner(t))}, []byte("CREATE TABLE t1 (n INTEGER)"))
	})
	for name, d := range databases {
		t.Run("fenced "+string(name), func(t *testing.T) {
			t.Parallel()
			d := d(t)
			dtesting.Test(t, held{fenced(t, mutex(t, memory()), d.dialect, d.inner(t))}, []byte("CREATE TABLE t2 (n INTEGER)"))
		})
	}
}

func TestUp_andDown(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		m := migrator(t, fenced(t, mutex(t, lock), d.dialect, d.inner(t)), migrations)
		require.NoError(t, m.Up())
		assertState(t, d, 11, 3, false)
		require.ErrorIs(t, m.Up(), migrate.ErrNoChange)
		require.NoError(t, m.Steps(-1))
		assertState(t, d, 1, 2, false)
		require.NoError(t, m.Force(1))
		assertState(t, d, 1, 1, false)
		require.NoError(t, m.Force(2))
		require.NoError(t, m.Down())
		version, _, err := d.inner(t).Version()
		require.NoError(t, err)
		assert.Equal(t, database.NilVersion, version)
	})
}

// severalUp has n programs start at once, and requires that one of them migrates.
func severalUp(t *testing.T, n int, lock string, d target, connect func() database.Driver) {
	t.Helper()
	var results []<-chan error
	for range n {
		driver := fenced(t, mutex(t, lock), d.dialect, connect())
		driver.LockTimeout = time.Minute
		m := migrator(t, driver, migrations)
		m.LockTimeout = 2 * time.Minute
		results = append(results, testwait.Go(m.Up))
	}
	migrated := 0
	for _, result := range results {
		if err := patience.Result(t, result); err == nil {
			migrated++
		} else {
			assert.ErrorIs(t, err, migrate.ErrNoChange)
		}
	}
	assert.Equal(t, 1, migrated)
	assertState(t, d, 11, 3, false)
}

// Several programs start at once: each migration is applied once, on each backend of locks.
func TestUp_ofSeveralOneMigrates(t *testing.T) {
	t.Parallel()
	locks := map[string]func(t testing.TB) string{"memory": func(testing.TB) string { return memory() + "?" }}
	maps.Copy(locks, servers)
	for name, url := range locks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock, d := url(t)+"ttl=2m&prefix="+space(), databases[golangmigrate.Postgres](t)
			severalUp(t, 3, lock, d, func() database.Driver { return d.inner(t) })
		})
	}
}

func TestLock_givesUp(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		other := mutex(t, lock)
		require.NoError(t, other.Lock(t.Context()))
		driver := golangmigrate.New(mutex(t, lock), d.inner(t))
		driver.LockTimeout = 50 * time.Millisecond
		require.ErrorIs(t, migrator(t, driver, migrations).Up(), context.DeadlineExceeded)
		require.NoError(t, other.Unlock(t.Context()))
		require.NoError(t, migrator(t, driver, migrations).Up())
		assertState(t, d, 11, 3, false)
	})
}

func TestClose_unlocks(t *testing.T) {
	t.Parallel()
	lock, d := memory(), databases[golangmigrate.SQLite](t)
	driver := golangmigrate.New(mutex(t, lock), d.inner(t))
	require.NoError(t, driver.Lock())
	require.ErrorIs(t, driver.Lock(), database.ErrLocked)
	require.NoError(t, driver.Close())
	require.NoError(t, mutex(t, lock).TryLock(t.Context()))
}

func TestOpen_hasTheSameLock(t *testing.T) {
	t.Parallel()
	lock, d := memory(), databases[golangmigrate.Postgres](t)
	database.Register("locked", golangmigrate.New(mutex(t, lock), d.inner(t)))
	opened, err := database.Open(strings.Replace(d.dsn, "postgres://", "locked://", 1))
	require.NoError(t, err)
	require.NoError(t, opened.Lock())
	require.ErrorIs(t, mutex(t, lock).TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, opened.Close())
	require.NoError(t, mutex(t, lock).TryLock(t.Context()))
}

func TestDriver_refusesWithoutTheLock(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		driver := fenced(t, mutex(t, lock), d.dialect, d.inner(t))
		require.ErrorIs(t, driver.Run(strings.NewReader("CREATE TABLE x (n INTEGER)")), locker.ErrNotHeld)
		require.ErrorIs(t, driver.SetVersion(1, false), locker.ErrNotHeld)
		require.ErrorIs(t, driver.Drop(), locker.ErrNotHeld)
		require.ErrorIs(t, driver.Unlock(), database.ErrNotLocked)
	})
}

// A later holder comes when a migration is about to run, or a version to be set; the earlier one
// knows nothing of a loss.
func TestFence_whoWasOvertakenChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		require.NoError(t, migrator(t, fenced(t, mutex(t, lock), d.dialect, d.inner(t)), migrations).Migrate(1))
		inner := hooked{Driver: d.inner(t), beforeRun: func(migration string) {
			if strings.Contains(migration, "n + 1;") {
				overtake(t.Context(), t, d)
			}
		}}
		err := migrator(t, fenced(t, mutex(t, lock), d.dialect, inner), migrations).Up()
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorContains(t, err, "run a migration")
		assertState(t, d, 0, 2, true)
		err = migrator(t, fenced(t, mutex(t, lock), d.dialect, d.inner(t)), migrations).Force(3)
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorContains(t, err, "set version 3")
		assertState(t, d, 0, 2, true)
	})
}

// A hold ends before or after any statement, and nobody comes, or another deploy at that moment: the
// next deploy succeeds, and each migration was applied once.
func TestFence_aLossAtAnyStepStopsNobody(t *testing.T) {
	const statements = 2 + 2*3 // Lock's two, and those of two migrations of three
	each(t, func(t *testing.T, lock string, d target) {
		for cut := range 2 * statements {
			for _, another := range []bool{false, true} {
				t.Run(fmt.Sprint(cut, another), func(t *testing.T) {
					t.Parallel()
					d, lock := databases[d.dialect](t), memory()
					inner := &cutAt{Driver: d.inner(t), cut: cut, do: func() {
						require.NoError(t, mutex(t, lock).Do(t.Context(), func(context.Context) error { return nil }), "it has expired")
						if another {
							_ = migrator(t, fenced(t, mutex(t, lock), d.dialect, d.inner(t)), migrations).Up()
						}
					}}
					short := mutex(t, lock+"?ttl=300ms&renew=false")
					err := migrator(t, fenced(t, short, d.dialect, inner), migrations).Up()
					require.Error(t, err)
					require.NoError(t, ignoring(migrator(t, fenced(t, mutex(t, lock), d.dialect, d.inner(t)), migrations).Up(), migrate.ErrNoChange), "%v", err)
					assertState(t, d, 11, 3, false)
				})
			}
		}
	})
}

func ignoring(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// What cannot run in a transaction says so, and is checked before.
func TestFence_withoutATransaction(t *testing.T) {
	t.Parallel()
	d := databases[golangmigrate.Postgres](t)
	concurrently := "CREATE INDEX CONCURRENTLY i ON counter (n);\n"
	files := fstest.MapFS{"1_counter.up.sql": migrations["1_counter.up.sql"], "2_index.up.sql": {Data: []byte(concurrently)}}
	driver := fenced(t, mutex(t, memory()), d.dialect, d.inner(t))
	require.ErrorContains(t, migrator(t, driver, files).Up(), "CREATE INDEX CONCURRENTLY")
	files["2_index.up.sql"] = &fstest.MapFile{Data: []byte(golangmigrate.NoTransaction + "\n" + concurrently)}
	require.NoError(t, migrator(t, driver, files).Force(1))
	require.NoError(t, migrator(t, driver, files).Up())
	assertState(t, d, 0, 2, false)

	require.NoError(t, driver.Lock())
	overtake(t.Context(), t, d)
	require.ErrorIs(t, driver.Run(strings.NewReader(golangmigrate.NoTransaction+"\nDROP TABLE counter")), fence.ErrStale)
	require.NoError(t, driver.Unlock())
	assertState(t, d, 0, 2, false)
}

// An error of a migration is migrate's own, with the line in the file.
func TestFence_aMigrationThatFails(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		files := fstest.MapFS{"1_typo.up.sql": {Data: []byte("CREATE TABLE counter (n INTEGER NOT NULL);\nINSERT INTO counter VALUES (NULL);\n")}}
		err := migrator(t, fenced(t, mutex(t, lock), d.dialect, d.inner(t)), files).Up()
		require.NotErrorIs(t, err, fence.ErrStale)
		require.ErrorContains(t, err, "counter")
	})
}

func TestNewFenced_refusesWhatItCannotFence(t *testing.T) {
	m, inner := mutex(t, memory()), databases[golangmigrate.SQLite](t).inner(t)
	_, err := golangmigrate.NewFenced(m, inner, "MySQL", "schema_migrations")
	require.ErrorContains(t, err, `"MySQL"`)
	_, err = golangmigrate.NewFenced(m, inner, golangmigrate.SQLite, "")
	require.ErrorContains(t, err, "schema_migrations")
}
