package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/sqlcases"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/sql/sqlite"
)

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

// The suite over pools of an application, in each journal mode, while somebody reads beside: outside
// WAL mode a reader makes commits fail.
func TestConformance_onAPoolOfTheApplication(t *testing.T) {
	testwait.OnlyNightly(t, "it takes minutes")
	for _, mode := range []string{"delete", "truncate", "persist", "wal"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			path := file(t)
			readBeside(t, path, mode)
			client := func(t conformance.TB, ttl time.Duration, renew bool) *locker.Client {
				opts := []locker.Option{locker.WithTTL(ttl)}
				if !renew {
					opts = append(opts, locker.WithoutRenewal())
				}
				db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode("+mode+")")
				check(t, err)
				c, err := sqlite.New(db, opts...)
				check(t, err)
				t.Cleanup(func() { _, _ = c.Close(), db.Close() })
				return c
			}
			conformance.Run(t, conformance.Harness{
				TTL: 2 * time.Second,
				New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
					return client(t, ttl, false).Mutex(name)
				},
				Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
					c := client(t, ttl, renew)
					return func(name string) locker.Locker { return c.Mutex(name) }
				},
			})
		})
	}
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
