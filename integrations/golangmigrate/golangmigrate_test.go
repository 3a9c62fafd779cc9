package golangmigrate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	dtesting "github.com/golang-migrate/migrate/v4/database/testing"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/integrations/golangmigrate"
	"github.com/go-locker/locker/internal/test/freshdb"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
)

// held passes migrate's tests of a driver, which run and set versions without the lock: it takes
// it.
type held struct{ database.Driver }

func (h held) Run(migration io.Reader) error {
	return h.under(func() error { return h.Driver.Run(migration) })
}

func (h held) SetVersion(version int, dirty bool) error {
	return h.under(func() error { return h.Driver.SetVersion(version, dirty) })
}

func (h held) Drop() error { return h.under(h.Driver.Drop) }

func (h held) under(f func() error) error { return errors.Join(h.Lock(), f(), h.Unlock()) }

func TestDriver_passesMigratesOwnTests(t *testing.T) {
	freshdb.Each(t, func(t *testing.T, d freshdb.Database) {
		dtesting.Test(t, held{golangmigrate.New(mutex(t, d.Locks), inner(t, d), 0)}, []byte("CREATE TABLE t1 (n INTEGER)"))
		dtesting.Test(t, held{fenced(t, freshdb.Of[d.Dialect](t))}, []byte("CREATE TABLE t2 (n INTEGER)"))
	})
}

// severalUp has n programs start at once, and requires that one of them migrates.
func severalUp(t *testing.T, n int, d freshdb.Database, connect func() database.Driver) {
	t.Helper()
	var results []<-chan error
	for range n {
		driver, err := golangmigrate.NewFenced(mutex(t, d.Locks+"?ttl=2m"), connect(), time.Minute, d.Dialect, "schema_migrations")
		require.NoError(t, err)
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

// Several programs start at once: each migration is applied once.
func TestUp_ofSeveralOneMigrates(t *testing.T) {
	t.Parallel()
	d := freshdb.Of[sqlfence.Postgres](t)
	severalUp(t, 3, d, func() database.Driver { return inner(t, d) })
}

func TestLock_givesUpAndCloseUnlocks(t *testing.T) {
	t.Parallel()
	d := freshdb.Of[sqlfence.SQLite](t)
	other := mutex(t, d.Locks)
	require.NoError(t, other.Lock(t.Context()))
	driver := golangmigrate.New(mutex(t, d.Locks), inner(t, d), 50*time.Millisecond)
	require.ErrorIs(t, migrator(t, driver, migrations).Up(), context.DeadlineExceeded)
	require.NoError(t, other.Unlock(t.Context()))
	require.NoError(t, driver.Lock())
	require.ErrorIs(t, driver.Lock(), database.ErrLocked)
	require.NoError(t, driver.Close())
	require.NoError(t, mutex(t, d.Locks).TryLock(t.Context()))
}

func TestOpen_hasTheSameLock(t *testing.T) {
	t.Parallel()
	d := freshdb.Of[sqlfence.Postgres](t)
	database.Register("locked", golangmigrate.New(mutex(t, d.Locks), inner(t, d), 0))
	opened, err := database.Open(strings.Replace(d.DSN, "postgres://", "locked://", 1))
	require.NoError(t, err)
	require.NoError(t, opened.Lock())
	require.ErrorIs(t, mutex(t, d.Locks).TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, opened.Close())
	require.NoError(t, mutex(t, d.Locks).TryLock(t.Context()))
}

func TestDriver_refusesWithoutTheLock(t *testing.T) {
	freshdb.Each(t, func(t *testing.T, d freshdb.Database) {
		driver := fenced(t, d)
		require.ErrorIs(t, driver.Run(strings.NewReader("CREATE TABLE x (n INTEGER)")), locker.ErrNotHeld)
		require.ErrorIs(t, driver.SetVersion(1, false), locker.ErrNotHeld)
		require.ErrorIs(t, driver.Drop(), locker.ErrNotHeld)
		require.ErrorIs(t, driver.Unlock(), database.ErrNotLocked)
	})
}

// The database has seen a later holder, and the earlier one knows nothing of a loss.
func TestFence_whoWasOvertakenChangesNothing(t *testing.T) {
	freshdb.Each(t, func(t *testing.T, d freshdb.Database) {
		driver := fenced(t, d)
		require.NoError(t, migrator(t, driver, migrations).Migrate(1))
		require.NoError(t, driver.Lock())
		overtake(t.Context(), t, d)
		require.ErrorIs(t, driver.Run(strings.NewReader("DROP TABLE counter")), fence.ErrStale)
		require.ErrorIs(t, driver.SetVersion(2, true), fence.ErrStale)
		require.NoError(t, driver.Unlock())
		assertState(t, d, 0, 1, false)
	})
}

// A hold ends before or after any statement, and nobody comes, or another deploy at that moment: the
// next deploy succeeds, and each migration was applied once.
func TestFence_aLossAtAnyStepStopsNobody(t *testing.T) {
	const statements = 2 + 2*3 // Lock's two, and those of two migrations of three
	freshdb.Each(t, func(t *testing.T, d freshdb.Database) {
		for cut := range 2 * statements {
			for _, another := range []bool{false, true} {
				t.Run(fmt.Sprint(cut, another), func(t *testing.T) {
					t.Parallel()
					d := freshdb.Of[d.Dialect](t)
					inner := &cutAt{Driver: inner(t, d), cut: cut, do: func() {
						require.NoError(t, mutex(t, d.Locks).Do(t.Context(), func(context.Context) error { return nil }), "it has expired")
						if another {
							_ = migrator(t, fenced(t, d), migrations).Up()
						}
					}}
					short := mutex(t, d.Locks+"?ttl=300ms&renew=false")
					err := migrator(t, fencedBy(t, short, d, inner), migrations).Up()
					require.Error(t, err)
					if next := migrator(t, fenced(t, d), migrations).Up(); next != nil {
						require.ErrorIs(t, next, migrate.ErrNoChange, "after %v", err)
					}
					assertState(t, d, 11, 3, false)
				})
			}
		}
	})
}

// Without a fence, a holder that is paused right before a step, after it has looked at the clock,
// still makes the step. Then it notices the loss, and the database stays dirty, which stops
// everybody.
func TestNew_aStepAfterALossLeavesTheDatabaseDirty(t *testing.T) {
	freshdb.Each(t, func(t *testing.T, d freshdb.Database) {
		other := migrator(t, golangmigrate.New(mutex(t, d.Locks), inner(t, d), time.Minute), migrations)
		other.LockTimeout = 2 * time.Minute
		const begun = 2 * 3 // before the fourth: the first migration has three statements
		inner := &cutAt{Driver: inner(t, d), cut: begun, do: func() {
			require.NoError(t, other.Up(), "the hold has expired")
			assertState(t, d, 11, 3, false)
		}}
		short := mutex(t, d.Locks+"?ttl=1s&renew=false")
		require.ErrorIs(t, migrator(t, golangmigrate.New(short, inner, 0), migrations).Up(), locker.ErrLost)
		assertState(t, d, 11, 2, true)
		require.ErrorAs(t, other.Up(), &migrate.ErrDirty{})
	})
}

// What cannot run in a transaction says so, and is checked before.
func TestFence_withoutATransaction(t *testing.T) {
	t.Parallel()
	d := freshdb.Of[sqlfence.Postgres](t)
	concurrently := "CREATE INDEX CONCURRENTLY i ON counter (n);\n"
	files := fstest.MapFS{"1_counter.up.sql": migrations["1_counter.up.sql"], "2_index.up.sql": {Data: []byte(concurrently)}}
	driver := fenced(t, d)
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
	freshdb.Each(t, func(t *testing.T, d freshdb.Database) {
		files := fstest.MapFS{"1_typo.up.sql": {Data: []byte("CREATE TABLE counter (n INTEGER NOT NULL);\nINSERT INTO counter VALUES (NULL);\n")}}
		err := migrator(t, fenced(t, d), files).Up()
		require.NotErrorIs(t, err, fence.ErrStale)
		require.ErrorContains(t, err, "counter")
	})
}

func TestNewFenced_refusesWhatItCannotFence(t *testing.T) {
	d := freshdb.Of[sqlfence.SQLite](t)
	m, inner := mutex(t, d.Locks), inner(t, d)
	_, err := golangmigrate.NewFenced(m, inner, 0, "MySQL", "schema_migrations")
	require.ErrorContains(t, err, `"MySQL"`)
	_, err = golangmigrate.NewFenced(m, inner, 0, sqlfence.SQLite, "")
	require.ErrorContains(t, err, "schema_migrations")
}

func TestMain(m *testing.M) {
	// The library reads the migrations that follow one that fails, and nobody takes them.
	goleak.VerifyTestMain(testserver.Tests(m), goleak.IgnoreAnyFunction("github.com/golang-migrate/migrate/v4.(*Migration).Buffer"))
}

const patience = testwait.Patience(time.Minute)

// inner returns migrate's own driver.
func inner(t testing.TB, d freshdb.Database) database.Driver {
	t.Helper()
	var inner database.Driver
	var err error
	if d.Dialect == sqlfence.SQLite {
		inner, err = sqlite.WithInstance(d.Open(t), &sqlite.Config{})
	} else {
		inner, err = pgx.WithInstance(d.Open(t), &pgx.Config{})
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = inner.Close() })
	return inner
}

func mutex(t testing.TB, lock string) *locker.Mutex {
	t.Helper()
	return testwait.Closed(locker.Open(t.Context(), lock))(t).Mutex("migrate")
}

// fenced is a driver with a fence.
func fenced(t testing.TB, d freshdb.Database) database.Driver {
	t.Helper()
	return fencedBy(t, mutex(t, d.Locks), d, inner(t, d))
}

func fencedBy(t testing.TB, m *locker.Mutex, d freshdb.Database, inner database.Driver) database.Driver {
	t.Helper()
	driver, err := golangmigrate.NewFenced(m, inner, 0, d.Dialect, "schema_migrations")
	require.NoError(t, err)
	return driver
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
func assertState(t testing.TB, d freshdb.Database, wantN, wantVersion int, wantDirty bool) {
	t.Helper()
	var n int
	db := d.Open(t)
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT n FROM counter").Scan(&n))
	assert.Equal(t, wantN, n, "added")
	version, dirty, err := inner(t, d).Version()
	require.NoError(t, err)
	assert.Equal(t, wantVersion, version, "version")
	assert.Equal(t, wantDirty, dirty, "dirty")
}

// cutAt calls a function before or after one of its statements.
type cutAt struct {
	database.Driver

	cut int // 2n: before statement n, 2n+1: after it
	do  func()
}

func (c *cutAt) Run(migration io.Reader) error {
	return c.statement(func() error { return c.Driver.Run(migration) })
}

func (c *cutAt) SetVersion(version int, dirty bool) error {
	return c.statement(func() error { return c.Driver.SetVersion(version, dirty) })
}

func (c *cutAt) statement(run func() error) error {
	c.step()
	defer c.step()
	return run()
}

func (c *cutAt) step() {
	if c.cut--; c.cut == -1 {
		c.do()
	}
}

// overtake has the database see a token that is larger than all of the lock.
func overtake(ctx context.Context, t testing.TB, d freshdb.Database) {
	t.Helper()
	_, err := d.Open(t).ExecContext(ctx, "UPDATE fencing_tokens SET token = token + 1000000000000")
	require.NoError(t, err)
}
