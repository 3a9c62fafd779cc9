package postgres

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
		"one server":           standalone,
		"asynchronous standby": func(t *testing.T) conformance.Harness { return replicated(t, false) },
		"synchronous standby":  func(t *testing.T) conformance.Harness { return replicated(t, true) },
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
	h.Faults.Refuse = func(t conformance.TB) (accept func()) {
		readOnly := func(statement string) {
			value[any](t, s.URL(), "ALTER SYSTEM "+statement)
			value[any](t, s.URL(), "SELECT pg_reload_conf()")
		}
		readOnly("SET default_transaction_read_only = on")
		return func() { readOnly("RESET default_transaction_read_only") }
	}
	h.Faults.Revoke = func(t conformance.TB, name string) { // as an operator may
		value[any](t, s.URL(), fmt.Sprintf(`SELECT locker_locks_force_v1(sha256('\x%x'), '', 0, '')`, "locker:"+name))
	}
	return h
}

// replicated leaves it to standalone what other faults do.
func replicated(t *testing.T, isSynchronous bool) conformance.Harness {
	t.Helper()
	primary := testserver.Postgres(t)
	r := &replication{primary, primary.Standby(), isSynchronous}
	r.follows(t)
	h := harness.ForURL(2*time.Second, "postgres://postgres@%s/postgres?sslmode=disable&connect_timeout=5", []string{r.primary.Addr(), r.standby.Addr()})
	h.RW, h.Grace = nil, true // there are no shares
	h.Faults = conformance.Faults{Through: h.Faults.Through, FailOver: r.failOver}
	return h
}

type replication struct {
	primary, standby *testserver.PostgresServer
	synchronous      bool
}

// replayed asks a primary whether its standby has all that it has.
const replayed = "SELECT coalesce(bool_and(replay_lsn >= pg_current_wal_flush_lsn()), false) FROM pg_stat_replication"

// follows returns when the standby follows.
func (r *replication) follows(t conformance.TB) {
	until(t, r.primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'")
	if r.synchronous {
		value[any](t, r.primary.URL(), "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
		value[any](t, r.primary.URL(), "SELECT pg_reload_conf()")
		until(t, r.primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
	}
}

// failOver is Faults.FailOver. A standby that is not synchronous gets nothing from the primary any
// more before it takes over.
func (r *replication) failOver(t conformance.TB) (fail func()) {
	if !r.synchronous {
		until(t, r.primary, replayed)
		value[any](t, r.standby.URL(), "ALTER SYSTEM SET primary_conninfo = ''")
		value[any](t, r.standby.URL(), "SELECT pg_reload_conf()")
		until(t, r.primary, "SELECT count(*) = 0 FROM pg_stat_replication")
	}
	t.Cleanup(func() {
		r.standby.Kill()
		r.standby.Follow(r.primary)
		r.follows(t)
	})
	return func() {
		r.primary.Kill()
		value[any](t, r.standby.URL(), "SELECT pg_promote()")
		r.primary, r.standby = r.standby, r.primary
	}
}

// until asks until the answer is true.
func until(t conformance.TB, s *testserver.PostgresServer, query string) {
	for deadline := time.Now().Add(20 * time.Second); !value[bool](t, s.URL(), query); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not true: %s", query)
		}
	}
}
