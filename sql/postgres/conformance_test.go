package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The suite on a real server, each Locker on a pool of its own.
func TestConformance(t *testing.T) {
	for name, start := range map[string]func(*testing.T) conformance.Harness{
		"one server": standalone, "asynchronous standby": asynchronous, "synchronous standby": synchronous,
	} {
		t.Run(name, func(t *testing.T) {
			if name != "one server" {
				testwait.OnlyNightly(t, "one server shows that the protocol keeps the promises, with all faults that it can have")
			}
			h := start(t)
			t.Parallel()
			conformance.Run(t, h)
		})
	}
}

// standalone has all faults but FailOver, because there is nobody to take over.
func standalone(t *testing.T) conformance.Harness {
	t.Helper()
	var opts []testserver.PostgresOption
	if testserver.ShiftsClocks {
		opts = append(opts, testserver.PostgresClock())
	}
	s := testserver.Postgres(t, opts...)
	servers := []*testserver.PostgresServer{s}
	// A Locker of its own has a connection to make, and the server a process, within half of a TTL.
	h := harness.ForURL(2*time.Second, "postgres://postgres@%s/postgres?sslmode=disable&connect_timeout=5", []string{s.Addr()})
	h.RW, h.Grace = nil, true // there are no shares
	h.Deviations = knownbreaks.Postgres()
	harness.Servers(&h.Faults, servers, s.Restart)
	harness.Clocks(&h.Faults, servers)
	if !testwait.Thorough() { // each crash is a grace of up to 40 s to wait for; TestHolds_surviveTheLossOfTheTable has one
		h.Faults.KillServer = nil
	}
	h.Faults.Revoke = func(t conformance.TB, name string) { // as an operator may
		ask(t, s, fmt.Sprintf(`SELECT locker_locks_force_v1(sha256('\x%x'), '', 0, '')`, "locker:"+name))
	}
	return h
}
