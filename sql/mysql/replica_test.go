package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// A replica takes over, whether it is told of statements or of rows. A hold that it has heard of
// goes on there. Of one that it has not, nobody knows, and two hold. The token of the second is
// larger, by the clock.
func TestFailover_toAReplica(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"STATEMENT", "ROW", "MIXED"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := testserver.MariaDB(t, testserver.MariaDBSettings("log-bin=binlog", "server-id=1", "binlog-format="+format))
			r := testserver.MariaDB(t, testserver.MariaDBSettings("log-bin=binlog", "server-id=2", "binlog-format="+format, "read-only=1"))
			primary, replica := pool(t, s.Addr(), ""), pool(t, r.Addr(), "")
			host, port, err := net.SplitHostPort(s.Addr())
			require.NoError(t, err)
			execute(t, replica, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'root', MASTER_LOG_FILE = 'binlog.000001', MASTER_LOG_POS = 4", host, port))
			execute(t, replica, "START SLAVE")
			open := func(url string) *locker.Client {
				return newClient(t, url, locker.WithPrefix("p"), locker.WithTTL(time.Minute))
			}
			c := open(s.URL())
			known, unknown, freed := c.Mutex("known"), c.Mutex("unknown"), c.Mutex("freed")
			for _, m := range []*locker.Mutex{known, unknown, freed} {
				require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
			}
			require.NoError(t, known.Lock(t.Context()))
			require.NoError(t, freed.Lock(t.Context()))
			require.NoError(t, known.Extend(t.Context()))
			ctx, cancel := context.WithCancel(t.Context())
			waiting := async(func() error { return open(s.URL()).Mutex("known").Lock(ctx) })
			eventually(t, "it waits", func() bool {
				state, err := c.Inspect(t.Context(), "known")
				return err == nil && len(state.Waiters) == 1
			})
			cancel()
			require.ErrorIs(t, await(t, waiting), locker.ErrHeld)
			require.NoError(t, freed.Unlock(t.Context()))
			eventually(t, "the replica knows all that the primary does", func() bool { return rowsOf(t, replica) == rowsOf(t, primary) })

			err = open(r.URL()).Mutex("freed").TryLock(t.Context())
			require.ErrorContains(t, err, "read_only")
			require.NotErrorIs(t, err, locker.ErrHeld)

			execute(t, replica, "STOP SLAVE")
			require.NoError(t, unknown.Lock(t.Context()))
			execute(t, replica, "SET GLOBAL read_only = 0")
			after := open(r.URL())
			require.ErrorIs(t, after.Mutex("known").TryLock(t.Context()), locker.ErrHeld)
			for name, last := range map[string]uint64{"unknown": unknown.FencingToken(), "freed": 0} {
				m := after.Mutex(name)
				require.NoError(t, m.TryLock(t.Context()), name)
				assert.Greater(t, m.FencingToken(), last, name)
			}
		})
	}
}

// rowsOf returns what the tables of locks hold.
func rowsOf(t *testing.T, db *sql.DB) (all string) {
	t.Helper()
	for _, query := range []string{
		"SELECT CONCAT_WS('/', HEX(lock_key), name, token, HEX(owner), metadata, ttl, until, released) FROM locker_locks ORDER BY lock_key",
		"SELECT CONCAT_WS('/', HEX(lock_key), ticket, HEX(owner), metadata, until) FROM locker_locks_waiters ORDER BY lock_key, ticket, owner",
	} {
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			return err.Error() // the tables are not there yet
		}
		for rows.Next() {
			var row string
			require.NoError(t, rows.Scan(&row))
			all += row + "\n"
		}
		require.NoError(t, rows.Err())
	}
	return all
}
