package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/sql/sqlite"
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
	c, err := locker.Open(t.Context(), "sqlite://"+path, append([]locker.Option{locker.WithTTL(20 * time.Second)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
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
	d, err := sqlite.NewDriver(db)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, db
}
