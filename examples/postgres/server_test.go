package postgres_test

import (
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/testserver"
)

// url ends with a query, to which more may be added.
func url(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable&connect_timeout=5"
}

func faults(s *testserver.PostgresServer) conformance.Faults {
	return conformance.Faults{
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
}
