package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/knownbreaks"
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
	eventually  = testwait.Patience(20 * time.Second).Until
	await       = testwait.Patience(20 * time.Second).Result
	async       = testwait.Go
	withTimeout = testwait.Context
	execute     = sqlcases.Execute
)

// newClient makes a Client of names that no other test has.
func newClient(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(t.Context(), url, append([]locker.Option{locker.WithPrefix(harness.Space(t)), locker.WithTTL(20 * time.Second)}, opts...)...))(t)
}

// pool is one of an application.
func pool(t testing.TB, addr, parameters string) *sql.DB {
	t.Helper()
	return testwait.Closed(sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/locker?%s", addr, parameters)))(t)
}

// newClientOver makes a Client over an application's pool.
func newClientOver(t testing.TB, db *sql.DB, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(New(db, append([]locker.Option{locker.WithPrefix(harness.Space(t)), locker.WithTTL(20 * time.Second)}, opts...)...))(t)
}

// newDriver makes a Driver on an application's pool.
func newDriver(t testing.TB, s *testserver.MariaDBServer, table string) (driver.Driver, *sql.DB) {
	t.Helper()
	db := pool(t, s.Addr(), "interpolateParams=true")
	d, err := NewDriver(db, table)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, db
}

// The suite on a server of MariaDB, each Locker on a pool of its own. There is nobody to take over.
func TestConformance(t *testing.T) {
	testwait.OnlyNightly(t, "it takes minutes")
	s := testserver.MariaDB(t, testserver.MariaDBClock,
		testserver.MariaDBSettings("innodb-flush-log-at-trx-commit=1")) // it loses nothing when it is killed
	servers := []*testserver.MariaDBServer{s}
	h := harness.ForURL(2*time.Second, "mariadb://root@%s/locker?connect_timeout=5s", []string{s.Addr()})
	h.RW = nil                            // there are no shares
	h.Deviations = knownbreaks.Postgres() // a row, and the server's clock
	harness.Servers(&h.Faults, servers, s.Restart)
	harness.Clocks(&h.Faults, servers)
	h.Faults.Revoke = func(t conformance.TB, name string) {
		db, err := sql.Open("mysql", "root@tcp("+s.Addr()+")/locker")
		if err == nil {
			_, err = db.ExecContext(context.Background(), "DELETE FROM locker_locks WHERE name = ?", []byte("locker:"+name))
			_ = db.Close()
		}
		if err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	conformance.Run(t, h)
}
