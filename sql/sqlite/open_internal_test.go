package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/fuzzurl"
)

func TestOpen_refuses(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite://": "path of a file", "sqlite:///": "path of a file", "sqlite://locks.db": "path of a file", "sqlite://h/locks.db": "path of a file",
		"sqlite://u:p@/locks.db": "path of a file", "sqlite:///locks.db?synchronous=off": "neither full", "sqlite:///locks.db?mode=ro": "mode",
	} {
		_, err := locker.Open(t.Context(), url)
		require.ErrorContains(t, err, want, url)
	}
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
	c, err := locker.Open(t.Context(), "sqlite://"+path, locker.WithTTL(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.ErrorContains(t, c.Mutex("x").TryLock(t.Context()), "another library")
	info, err := other.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size(), "nothing was written")
	require.NoError(t, other.Close())

	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	own, err := New(db, locker.WithTTL(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { _ = own.Close() })
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
