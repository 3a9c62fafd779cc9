package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

// asynchronous and synchronous leave it to standalone what other faults do.
func asynchronous(t *testing.T) conformance.Harness { t.Helper(); return replicated(t, false) }
func synchronous(t *testing.T) conformance.Harness  { t.Helper(); return replicated(t, true) }

func replicated(t *testing.T, isSynchronous bool) conformance.Harness {
	t.Helper()
	primary := testserver.Postgres(t)
	r := &replication{primary, primary.Standby(), isSynchronous}
	r.follows(t)
	c := newClient(t, primary.URL())
	assert.NotContains(t, warningsOf(t, c), "standby")
	require.NoError(t, c.Close())
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
		ask(t, r.primary, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
		ask(t, r.primary, "SELECT pg_reload_conf()")
		until(t, r.primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
	}
}

// failOver is Faults.FailOver. A standby that is not synchronous gets nothing from the primary any
// more before it takes over.
func (r *replication) failOver(t conformance.TB) (fail func()) {
	if !r.synchronous {
		until(t, r.primary, replayed)
		ask(t, r.standby, "ALTER SYSTEM SET primary_conninfo = ''")
		ask(t, r.standby, "SELECT pg_reload_conf()")
		until(t, r.primary, "SELECT count(*) = 0 FROM pg_stat_replication")
	}
	t.Cleanup(func() {
		r.standby.Kill()
		r.standby.Follow(r.primary)
		r.follows(t)
	})
	return func() {
		r.primary.Kill()
		ask(t, r.standby, "SELECT pg_promote()")
		r.primary, r.standby = r.standby, r.primary
	}
}

// until asks until the answer is true.
func until(t conformance.TB, s *testserver.PostgresServer, query string) {
	for deadline := time.Now().Add(20 * time.Second); ask(t, s, query) != true; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not true: %s", query)
		}
	}
}

// ask returns the first value of an answer, also when the context of t has ended.
func ask(t conformance.TB, s *testserver.PostgresServer, query string) any {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, _ := conn.Query(ctx, query) // Err has the error
	var values []any
	if rows.Next() {
		values, _ = rows.Values()
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if len(values) == 0 {
		return nil
	}
	return values[0]
}
