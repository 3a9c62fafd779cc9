package postgres_test

import (
	"testing"
	"time"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/testserver"
)

// url ends with a query, to which more may be added.
func url(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable&connect_timeout=5"
}

func startServer(t testing.TB) *testserver.PostgresServer {
	if testserver.ShiftsClocks {
		return testserver.Postgres(t, testserver.PostgresClock())
	}
	return testserver.Postgres(t)
}

func faults(s *testserver.PostgresServer) conformance.Faults {
	f := conformance.Faults{
		StopServer: func(conformance.TB) (resume func()) {
			s.Stop()
			return s.Continue
		},
		KillServer: func(conformance.TB) (restart func()) {
			s.Kill()
			return s.Restart
		},
		WipeServer: func(conformance.TB) (restart func()) {
			s.Kill()
			s.Wipe()
			return s.Restart
		},
	}
	if testserver.ShiftsClocks {
		f.MoveClock = func(_ conformance.TB, d time.Duration) (back func()) {
			s.ShiftClock(d)
			return func() { s.ShiftClock(-d) }
		}
	}
	return f
}
