package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// throughPooler are scenarios of the suite, for a Locker whose requests go through any of a few
// connections.
var throughPooler = []string{
	"everyone who waits is served", "a Lock cancelled at any moment leaves nothing behind", "tokens rise in the order of the holds, with many contending",
	"a take whose reply was lost leaves nothing behind", "waiters are served in the order in which they came", "a random history is that of one lock",
}

// A pooler in transaction mode has each statement run on any of its connections. Statements that
// pgx has prepared on one are unknown to the others, and nothing that is notified arrives.
func TestPgBouncer(t *testing.T) {
	testwait.OnlyNightly(t, "it is a server more")
	t.Parallel()
	s := testserver.Postgres(t)
	pooler := testserver.PgBouncer(t, s, 4)
	h := harness.ForURL(2*time.Second, "postgres://postgres@%s/postgres?sslmode=disable&connect_timeout=5", []string{pooler.Addr()})
	h.RW = nil
	for _, scenario := range conformance.Scenarios() {
		for _, name := range throughPooler {
			if scenario.Name != name {
				continue
			}
			t.Run(name, func(t *testing.T) {
				r := conformance.Examine(t, scenario, h)
				assert.Equal(t, conformance.Kept, r.Outcome, "%s %v", r.Outcome, r.Seen)
			})
		}
	}
	t.Run("Warnings, and what waiters do", func(t *testing.T) {
		c := openURL(t, pooler.URL(), locker.WithPrefix(prefixOf(t)))
		warnings, err := c.Warnings(t.Context())
		require.NoError(t, err)
		assert.Contains(t, strings.Join(warnings, "\n"), "notifications do not arrive")
		m := openURL(t, s.URL(), locker.WithPrefix(prefixOf(t))).Mutex("x")
		next := c.Mutex("x")
		for range 3 {
			require.NoError(t, m.Lock(t.Context()))
			locked := waits(t, t.Context(), c, next, 1)
			require.NoError(t, m.Unlock(t.Context()))
			require.NoError(t, await(t, locked), "it looks")
			require.NoError(t, next.Unlock(t.Context()))
		}
	})
}
