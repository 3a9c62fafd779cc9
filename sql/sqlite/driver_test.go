package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/sqllock"
	"github.com/go-locker/locker/internal/test/fuzzurl"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/sqlcases"

	"github.com/go-locker/locker/internal/test/testwait"
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
	resume := lockFile(t, path)
	sqlcases.Unanswered(t, c, held)
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

func TestNew_refuses(t *testing.T) {
	require.ErrorContains(t, newClientOver(t, ":memory:").Mutex("x").TryLock(t.Context()), "in memory")
	_, err := New(nil)
	require.Error(t, err)
}

func TestNew_onAConnectionLeftInATransaction(t *testing.T) {
	t.Parallel()
	path := file(t)
	db := pool(t, path)
	c := testwait.Closed(New(db, locker.WithTTL(20*time.Second)))(t)
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
			var all sync.WaitGroup
			ctx := withTimeout(t, 2*time.Minute)
			for range clients {
				m := newClientOver(t, "file:"+path+"?_pragma=journal_mode("+mode+")").Mutex("x")
				all.Go(func() {
					for range rounds {
						assert.NoError(t, m.Do(ctx, func(context.Context) error {
							token := m.FencingToken()
							assert.EqualValues(t, 1, inside.Add(1), "two hold")
							assert.Less(t, last.Swap(token), token)
							inside.Add(^uint64(0))
							return nil
						}))
					}
				})
			}
			all.Wait()
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
	inspect := func(ctx context.Context) error { _, err := missing.Inspect(ctx, "x"); return err }
	for _, call := range []func(context.Context) error{missing.Mutex("x").TryLock, missing.Mutex("x").Lock, inspect} {
		err := call(t.Context())
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, filepath.Dir(path)+"/missing:")
		require.NotErrorIs(t, err, locker.ErrHeld)
	}

	require.NoError(t, c.Mutex("x").TryLock(t.Context()))
	full := newClient(t, path)
	require.NoError(t, full.Mutex("y").TryLock(t.Context()))
	pages := sqlcases.Value[int](t, pool(t, path), "PRAGMA page_count")
	disk := newClientOver(t, fmt.Sprintf("file:%s?_pragma=max_page_count(%d)", path, pages))
	require.ErrorContains(t, disk.Mutex(strings.Repeat("large", 1<<16)).TryLock(t.Context()), "full", "as when the disk is")

	readonly := newClientOver(t, "file:"+path+"?mode=ro")
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

func TestOpen_refuses(t *testing.T) {
	const file = "path of a file"
	harness.RefusesURLs(t, map[string]string{
		"sqlite://": file, "sqlite:///": file, "sqlite://locks.db": file, "sqlite://h/locks.db": file,
		"sqlite://u:s3cret@/locks.db": file, "sqlite:///locks.db?synchronous=off": "neither full",
		"sqlite:///locks.db?mode=ro": "mode",
	})
}

// What has the file open here, too, stands for another library for SQLite, which opens the same
// files.
func TestFile_isOpenByAnotherLibrary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("who has a file open is seen on Linux alone")
	}
	was := secondLibrary
	t.Cleanup(func() { secondLibrary = was })
	secondLibrary = func() string { return "sqlite3" }
	path := filepath.Join(t.TempDir(), "locks.db")
	other, err := os.Create(path) //nolint:gosec // of the test
	require.NoError(t, err)
	c := testwait.Closed(locker.Open(t.Context(), "sqlite://"+path, locker.WithTTL(time.Minute)))(t)
	require.ErrorContains(t, c.Mutex("x").TryLock(t.Context()), "another library")
	info, err := other.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size(), "nothing was written")
	require.NoError(t, other.Close())

	db := testwait.Closed(sql.Open("sqlite", "file:"+path))(t)
	own := testwait.Closed(New(db, locker.WithTTL(time.Minute)))(t)
	m := c.Mutex("x")
	require.NoError(t, m.TryLock(t.Context()))
	require.ErrorIs(t, own.Mutex("x").TryLock(t.Context()), locker.ErrHeld, "it is the same library")
	other, err = os.Open(path + "-shm") //nolint:gosec // of the test
	require.NoError(t, err)
	require.ErrorContains(t, m.Extend(t.Context()), "another library")
	require.ErrorContains(t, own.Mutex("y").TryLock(t.Context()), "another library")
	require.NoError(t, other.Close())
}

// A pool of another library is refused: what its errors mean is not known.
func TestNew_overAnotherLibrary(t *testing.T) {
	db := sql.OpenDB(other{})
	c, err := New(db, locker.WithTTL(time.Second))
	require.NoError(t, err)
	require.ErrorContains(t, c.Mutex("x").TryLock(t.Context()), "not of modernc.org/sqlite")
	require.NoError(t, c.Close())
	require.NoError(t, db.Close())
}

// other is a library whose every statement fails.
type other struct{}

func (o other) Connect(context.Context) (sqldriver.Conn, error) { return o, nil }
func (other) Driver() sqldriver.Driver                          { return nil }
func (other) Begin() (sqldriver.Tx, error)                      { return nil, errors.ErrUnsupported }
func (other) Close() error                                      { return nil }
func (other) Prepare(string) (sqldriver.Stmt, error)            { return nil, errors.New("no such table") }

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "sqlite", open, "/var/lib/app/locks.db", "/a%20b%3F%23.db?synchronous=normal", "/")
}
