package golangmigrate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
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
	dtesting "github.com/golang-migrate/migrate/v4/database/testing"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/integrations/golangmigrate"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/redis"
	_ "github.com/go-locker/locker/sql/postgres"
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
