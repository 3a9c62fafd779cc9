package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/sqllock"
	"github.com/go-locker/locker/internal/test/sqlcases"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/sql/sqlite"
)

// A machine that has restarted has a clock that begins anew: what was written by the old one is
// further ahead than anything can be. A hold that was not released lasts one more TTL from when
// somebody looks, and what was released is free. A boot id would tell less: containers have their
// own.
func TestRestart_ofTheMachine(t *testing.T) {
	t.Parallel()
	path := file(t)
	const ttl = 8 * time.Second
	before := newClient(t, path, locker.WithTTL(ttl), locker.WithoutRenewal())
	held, released := before.Mutex("held"), before.Mutex("released")
	require.NoError(t, held.Lock(t.Context()))
	require.NoError(t, before.Mutex("forgotten").Lock(t.Context()))
	require.NoError(t, released.Lock(t.Context()))
	last := released.FencingToken()
	require.NoError(t, released.Unlock(t.Context()))
	db := pool(t, path)
	const ahead = int64(1) << 60
	sqlcases.Execute(t, db, "UPDATE locker_locks SET until = ?", ahead)
	sqlcases.Execute(t, db, "INSERT INTO locker_waiters SELECT lock_key, 1, X'78', X'', ? FROM locker_locks WHERE name IN (?, ?)",
		ahead, []byte("locker:released"), []byte("locker:held"))
	after := newClient(t, path)
	state, err := after.Inspect(t.Context(), "held")
	require.NoError(t, err)
	assert.LessOrEqual(t, state.Left, ttl)
	assert.Empty(t, state.Waiters)
	m := after.Mutex("released")
	require.NoError(t, m.TryLock(t.Context()))
	assert.Greater(t, m.FencingToken(), last)
	require.ErrorIs(t, after.Mutex("held").TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, after.Mutex("held").Lock(withTimeout(t, 30*time.Second)), "after a TTL it is free")

	d, _ := newDriver(t, path)
	for range 2 { // from somewhere to the end, and from the beginning
		require.NoError(t, d.(*sqllock.Driver).Sweep(t.Context(), sqllock.Idle))
	}
	assert.Less(t, sqlcases.Value[int64](t, db, "SELECT until FROM locker_locks WHERE name = ?", []byte("locker:forgotten")), ahead)
	assert.Zero(t, sqlcases.Value[int](t, db, "SELECT count(*) FROM locker_waiters WHERE until = ?", ahead))
}

// Nobody can write while another process has a transaction open. ctx ends the wait, whatever it is
// for, and it is an error, not ErrHeld.
func TestLock_whileAnotherProcessIsStoppedWhileItWrites(t *testing.T) {
	t.Parallel()
	path := file(t)
	c := newClient(t, path)
	held := c.Mutex("held")
	require.NoError(t, held.Lock(t.Context()))
	resume := lockFile(conformance.TB(t), path)
	for name, call := range map[string]func(context.Context) error{
		"Lock": c.Mutex("free").Lock, "TryLock": c.Mutex("free too").TryLock, "Extend": held.Extend,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		err := call(ctx)
		assert.Less(t, time.Since(began), 5*time.Second, name)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, locker.ErrHeld, name)
		require.NotErrorIs(t, err, locker.ErrLost, name)
		cancel()
	}
	require.ErrorIs(t, c.Mutex("held").TryLock(t.Context()), locker.ErrHeld, "who only reads is not kept")
	unlocked := async(func() error { return held.Unlock(t.Context()) })
	resume()
	require.NoError(t, await(t, unlocked))
	for _, name := range []string{"free", "free too", "held"} {
		require.NoError(t, c.Mutex(name).Lock(withTimeout(t, time.Minute)), "what was given up takes nothing that stays")
	}
}

func TestRelease_beforeItsTakeArrives(t *testing.T) {
	t.Parallel()
	path := file(t)
	d, db := newDriver(t, path)
	sqlcases.Released(t, d, db, func([]byte) (unblock func()) { return lockFile(t, path) })
}

func TestSweep(t *testing.T) {
	t.Parallel()
	d, db := newDriver(t, file(t))
	sqlcases.Sweep(t, d, db, "locker_locks", "locker_waiters")
}

// An application's own pool may have no busy_timeout, and its transactions keep locks waiting, no
// longer.
func TestNew_onAPoolOfTheApplication(t *testing.T) {
	t.Parallel()
	path := file(t)
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	c, err := sqlite.New(db, locker.WithTTL(20*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)")
	require.NoError(t, err)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	// Without it a commit fails at once if another reads the file.
	_, err = conn.ExecContext(t.Context(), "PRAGMA busy_timeout = 10000")
	require.NoError(t, err)
	tx, err := conn.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO orders VALUES (1, 'new')")
	require.NoError(t, err)
	m := c.Mutex("x")
	locking := async(func() error { return m.Lock(t.Context()) })
	select {
	case err := <-locking:
		require.NoError(t, err)
		t.Fatal("it was locked while the file could not be written")
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, tx.Commit())
	require.NoError(t, await(t, locking))
	require.ErrorIs(t, newClient(t, path).Mutex("x").TryLock(t.Context()), locker.ErrHeld, "it is the same lock")
	require.NoError(t, m.Unlock(t.Context()))

	memory, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { _ = memory.Close() })
	alone, err := sqlite.New(memory, locker.WithTTL(time.Second))
	require.NoError(t, err)
	require.ErrorContains(t, alone.Mutex("x").TryLock(t.Context()), "in memory")
	require.NoError(t, alone.Close())
	_, err = sqlite.New(nil)
	require.Error(t, err)
}

func TestNew_onAConnectionLeftInATransaction(t *testing.T) {
	t.Parallel()
	path := file(t)
	db := pool(t, path)
	c, err := sqlite.New(db, locker.WithTTL(20*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	sqlcases.Abandoned(t, c, newClient(t, path), db, "BEGIN")
}

// One holds at a time in each journal mode, with a reader beside, who makes commits fail outside WAL
// mode.
func TestNew_besideAReader(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"delete", "truncate", "persist", "wal"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			path := file(t)
			readBeside(t, path, mode)
			const clients, rounds = 4, 15
			var inside, last atomic.Uint64
			var done []<-chan error
			for range clients {
				db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode("+mode+")")
				require.NoError(t, err)
				t.Cleanup(func() { _ = db.Close() })
				c, err := sqlite.New(db, locker.WithTTL(time.Minute))
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				done = append(done, async(func() error {
					m := c.Mutex("x")
					for range rounds {
						if err := m.Lock(t.Context()); err != nil {
							return err
						}
						token := m.FencingToken()
						if inside.Add(1) > 1 || last.Swap(token) >= token {
							return fmt.Errorf("two hold, or token %d is no larger than the last", token)
						}
						inside.Add(^uint64(0))
						if err := m.Unlock(t.Context()); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			for _, d := range done {
				require.NoError(t, testwait.Patience(2*time.Minute).Result(t, d))
			}
		})
	}
}

// A file that has taken the place of another has other locks. Who has the old one open hears of it.
func TestFile_isReplaced(t *testing.T) {
	t.Parallel()
	path := file(t)
	c := newClient(t, path, locker.WithTTL(10*time.Second))
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	token := m.FencingToken()
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		require.NoError(t, os.Remove(name))
	}
	other := newClient(t, path).Mutex("x")
	require.NoError(t, other.Lock(t.Context()))
	assert.Greater(t, other.FencingToken(), token)
	require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
	require.ErrorIs(t, c.Mutex("x").TryLock(t.Context()), locker.ErrHeld, "both have the new file")
	require.NoError(t, other.Unlock(t.Context()))
}

// What cannot be written is an error, and what is not there is not made by who only looks.
func TestFile_cannotBeWritten(t *testing.T) {
	t.Parallel()
	path := file(t)
	c := newClient(t, path)
	state, err := c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	assert.Zero(t, state)
	for _, err := range c.List(t.Context(), "") {
		require.NoError(t, err)
	}
	assert.NoFileExists(t, path)

	missing := newClient(t, filepath.Join(filepath.Dir(path), "missing", "locks.db"))
	for _, lock := range []func(context.Context) error{missing.Mutex("x").TryLock, missing.Mutex("x").Lock} {
		err := lock(t.Context())
		require.ErrorContains(t, err, "unable to open database file")
		require.NotErrorIs(t, err, locker.ErrHeld)
	}

	require.NoError(t, c.Mutex("x").TryLock(t.Context()))
	full := newClient(t, path)
	require.NoError(t, full.Mutex("y").TryLock(t.Context()))
	pages := sqlcases.Value[int](t, pool(t, path), "PRAGMA page_count")
	small, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=max_page_count(%d)", path, pages))
	require.NoError(t, err)
	t.Cleanup(func() { _ = small.Close() })
	disk, err := sqlite.New(small)
	require.NoError(t, err)
	t.Cleanup(func() { _ = disk.Close() })
	require.ErrorContains(t, disk.Mutex(strings.Repeat("large", 1<<16)).TryLock(t.Context()), "full", "as when the disk is")

	reading, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	require.NoError(t, err)
	t.Cleanup(func() { _ = reading.Close() })
	readonly, err := sqlite.New(reading)
	require.NoError(t, err)
	t.Cleanup(func() { _ = readonly.Close() })
	require.ErrorContains(t, readonly.Mutex("z").TryLock(t.Context()), "readonly")
	state, err = readonly.Inspect(t.Context(), "x")
	require.NoError(t, err)
	assert.True(t, state.Held)
}

// Whoever may read the files can lock them, and stop all who use them: others than the owner may
// not, unless the file was made for them before.
func TestFile_isItsOwners(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes")
	}
	path := file(t)
	lock := func(mode os.FileMode) {
		require.NoError(t, newClient(t, path).Mutex("x").Do(t.Context(), func(context.Context) error { return nil }))
		for _, name := range []string{path, path + "-wal", path + "-shm"} {
			info, err := os.Stat(name)
			require.NoError(t, err)
			assert.Equal(t, mode, info.Mode(), name)
		}
	}
	lock(0o600)
	path = file(t)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, 0o664)) //nolint:gosec // of the test
	lock(0o664)
	warnings, err := newClient(t, path).Warnings(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "every user")
}

func TestFence_inTheSameTransaction(t *testing.T) {
	t.Parallel()
	db := pool(t, file(t))
	c, err := sqlite.New(db, locker.WithTTL(20*time.Second), locker.WithoutRenewal())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	sqlcases.Fence(t, c, db, sqlfence.SQLite)
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	path := file(t)
	for query, want := range map[string]int{"": 0, "?synchronous=normal": 1} {
		c := newClient(t, path+query)
		require.NoError(t, c.Mutex("x").Lock(t.Context()))
		warnings, err := c.Warnings(t.Context())
		require.NoError(t, err)
		assert.Len(t, warnings, want, query)
		require.NoError(t, c.Close())
	}
}
