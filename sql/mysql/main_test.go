package mysql_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/sqlcases"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/sql/mysql"
)

func TestMain(m *testing.M) {
	harness.Serve()
	goleak.VerifyTestMain(testserver.Tests(m))
}

var (
	eventually  = testwait.Patience(20 * time.Second).Until
	await       = testwait.Patience(20 * time.Second).Result
	async       = testwait.Go
	withTimeout = testwait.Context
	execute     = sqlcases.Execute
)

// newClient makes a Client of names that no other test has.
func newClient(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url, append([]locker.Option{locker.WithPrefix(harness.Space(t)), locker.WithTTL(20 * time.Second)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// pool is one of an application.
func pool(t testing.TB, addr, parameters string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/locker?%s", addr, parameters))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// newDriver makes a Driver on an application's pool.
func newDriver(t testing.TB, s *testserver.MariaDBServer, table string) (driver.Driver, *sql.DB) {
	t.Helper()
	db := pool(t, s.Addr(), "interpolateParams=true")
	d, err := mysql.NewDriver(db, table)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, db
}
