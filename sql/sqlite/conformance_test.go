package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/sqlcases"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) {
	harness.Serve()
	goleak.VerifyTestMain(testserver.Tests(m))
}

var (
	await       = testwait.Patience(20 * time.Second).Result
	async       = testwait.Go
	withTimeout = testwait.Context
)

// file returns the path of a file that is not there yet, on a disk that does not have tests wait.
func file(t testing.TB) string {
	t.Helper()
	return filepath.Join(testserver.MemoryDir(t), "locks.db")
}

func newClient(t testing.TB, path string, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(t.Context(), "sqlite://"+path, append([]locker.Option{locker.WithTTL(20 * time.Second)}, opts...)...))(t)
}

// newClientOver makes a Client over an application's pool.
func newClientOver(t testing.TB, name string) *locker.Client {
	t.Helper()
	db := testwait.Closed(sql.Open("sqlite", name))(t)
	return testwait.Closed(New(db, locker.WithTTL(20*time.Second)))(t)
}

// pool is one of an application.
func pool(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// newDriver makes a Driver on an application's pool.
func newDriver(t testing.TB, path string) (driver.Driver, *sql.DB) {
	t.Helper()
	db := pool(t, path)
	d, err := NewDriver(db)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, db
}

// The suite on one file, each Locker on a pool of its own. There is no network, and nobody can set
// the clock.
func TestConformance(t *testing.T) {
	testwait.OnlyNightly(t, "processes that come and go write to one file, and it takes minutes")
	path := file(t)
	h := harness.ForURL(2*time.Second, "sqlite://%s?synchronous=full", []string{path})
	h.RW = nil // there are no shares
	h.Deviations = map[string]string{
		"a hold lasts though the server loses its data":                       "the lock is a row of a file, and is lost with the file",
		"a random history is that of one lock though servers lose their data": "the lock is a row of a file, and is lost with the file",
	}
	h.Faults.Through, h.Faults.ThroughClient = nil, nil
	h.Faults.StopServer = func(t conformance.TB) (resume func()) { return lockFile(t, path) }
	if exchange != nil {
		h.Faults.KillServer = func(t conformance.TB) (restart func()) { return takeAway(t, path, false) }
		h.Faults.WipeServer = func(t conformance.TB) (restart func()) { return takeAway(t, path, true) }
	}
	h.Faults.Revoke = func(t conformance.TB, name string) {
		statement(t, path, func(ctx context.Context, c *sql.Conn) error {
			_, err := c.ExecContext(ctx, "DELETE FROM locker_locks WHERE name = ?", []byte("locker:"+name))
			return err
		})()
	}
	conformance.Run(t, h)
}

// readBeside has somebody read the file again and again, for a moment each, until the test ends.
func readBeside(t *testing.T, path, mode string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(20000)&_pragma=journal_mode("+mode+")")
	require.NoError(t, err)
	sqlcases.Execute(t, db, "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
	ctx, cancel := context.WithCancel(context.Background())
	reading := async(func() error {
		c, err := db.Conn(context.Background())
		for err == nil && ctx.Err() == nil {
			_, err = c.ExecContext(context.Background(), "BEGIN; SELECT count(*) FROM orders")
			time.Sleep(time.Millisecond) // in its transaction
			if err == nil {
				_, err = c.ExecContext(context.Background(), "ROLLBACK")
			}
			time.Sleep(3 * time.Millisecond)
		}
		return errors.Join(err, c.Close())
	})
	t.Cleanup(func() {
		cancel()
		require.NoError(t, await(t, reading))
		require.NoError(t, db.Close())
	})
}

func check(t conformance.TB, err error) {
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// lockFile does what a process does that is stopped while it writes.
func lockFile(t conformance.TB, path string) (unlock func()) {
	return statement(t, path, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, "BEGIN IMMEDIATE")
		return err
	})
}

// statement runs f on a connection of its own.
func statement(t conformance.TB, path string, f func(context.Context, *sql.Conn) error) (end func()) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
	check(t, err)
	c, err := db.Conn(context.Background())
	check(t, err)
	check(t, f(context.Background(), c))
	return func() {
		check(t, c.Close())
		check(t, db.Close())
	}
}

// takeAway has nothing be at path that can be opened, until restart is called, and the file be lost
// or not.
func takeAway(t conformance.TB, path string, lose bool) (restart func()) {
	away := path + ".away"
	check(t, os.Mkdir(away, 0o700))
	check(t, exchange(path, away))
	if lose {
		for _, file := range []string{away, path + "-wal", path + "-shm"} {
			check(t, os.RemoveAll(file))
		}
		return func() { check(t, os.Remove(path)) }
	}
	return func() {
		check(t, exchange(path, away))
		check(t, os.Remove(away))
	}
}
