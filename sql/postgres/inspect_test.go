package postgres_test

import (
	"testing"
	"time"

	"github.com/go-locker/locker/internal/test/clienttest"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/sql/postgres"
)

func TestInspectAtAServer(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	script(t, s.URL(), postgres.Schema("locker_locks"))
	harness.Inspect(t, harness.Inspection{
		URL: s.URL() + "&renew=false", TTL: time.Second, Left: true, Since: true, LastToken: true, TokenWhenWaited: true, Queue: true, QueueMetadata: true,
		IDs: true, TellsHolder: true, TellsMetadata: true,
		Contents: func(t testing.TB) string {
			t.Helper()
			return value[string](t, s.URL(), "SELECT coalesce(string_agg(locks::text, ' ' ORDER BY key), '') FROM (SELECT key, token, version, owner, waited, ARRAY(SELECT owner FROM locker_locks_waiters AS w WHERE w.key = l.key) FROM locker_locks AS l) AS locks")
		},
		Listening: func(n int) bool {
			return value[int](t, s.URL(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'") >= n
		},
		Stop: func() func() { s.Stop(); return s.Continue },
		Kill: s.Kill,
	})
}

// List and ForceRelease.
func TestOperators(t *testing.T) {
	testwait.OnlyNightly(t, "the tests are those of all backends")
	t.Parallel()
	clienttest.Operators(t, clienttest.Of(t, testserver.Postgres(t).URL()))
}
