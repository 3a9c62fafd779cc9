package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The suite on a server of MariaDB, each Locker on a pool of its own. There is nobody to take over.
func TestConformance(t *testing.T) {
	testwait.OnlyNightly(t, "it takes minutes")
	s := testserver.MariaDB(t, testserver.MariaDBClock, testserver.MariaDBDurable)
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
