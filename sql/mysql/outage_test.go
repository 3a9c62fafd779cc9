package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/sqlcases"
	"github.com/go-locker/locker/internal/test/testserver"
)

// blocked waits until a statement that begins so, and cannot go on, is at the server. It returns
// the id of its connection.
func blocked(t *testing.T, db *sql.DB, begins string) (id int) {
	t.Helper()
	eventually(t, "a statement waits for a row", func() bool {
		return db.QueryRowContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE info LIKE ?", begins+"%").Scan(&id) == nil
	})
	return id
}

// connected has c make up to n connections.
func connected(t *testing.T, c *locker.Client, n int) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() { _, err := c.Inspect(t.Context(), "x"); assert.NoError(t, err) })
	}
	all.Wait()
}

// lockRows locks what it selects, until unlock is called.
func lockRows(t *testing.T, db *sql.DB, from string, args ...any) (unlock func()) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	rows, err := tx.QueryContext(t.Context(), "SELECT 1 FROM "+from+" FOR UPDATE", args...)
	require.NoError(t, err)
	for rows.Next() {
	}
	require.NoError(t, rows.Err())
	return func() { _ = tx.Rollback() } // its connection may have gone
}

func TestOutage_isRiddenOutForHalfATTL(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	harness.Outage(t, s.URL(), s.Kill)
}

// A connection that breaks while a take is in flight is an outage, which a Lock rides out. Whether
// the take was done is seen by its owner.
func TestLock_whoseConnectionBreaks(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	db := pool(t, s.Addr(), "")
	m := newClient(t, s.URL(), locker.WithPrefix("p"), locker.WithTTL(time.Minute)).Mutex("x")
	require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
	unlock := lockRows(t, db, "locker_locks WHERE name = 'p:x'")
	locking := async(func() error { return m.Lock(t.Context()) })
	execute(t, db, fmt.Sprintf("KILL %d", blocked(t, db, "UPDATE")))
	unlock()
	require.NoError(t, await(t, locking))
	require.NoError(t, m.Unlock(t.Context()))
}

// While somebody keeps the server from writing, as a backup does, nothing is granted, and what was
// given up does not stay there.
func TestLock_whileNobodyMayWrite(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	db := pool(t, s.Addr(), "")
	c := newClient(t, s.URL())
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	backup, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = backup.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")
	require.NoError(t, err)
	sqlcases.Unanswered(t, c, m)
	eventually(t, "nothing waits at the server", func() bool {
		return sqlcases.Value[int](t, db, "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE%'") == 0
	})
	require.NoError(t, backup.Close())
	require.NoError(t, db.Close())
	require.NoError(t, m.Unlock(withTimeout(t, time.Minute)))
	require.NoError(t, c.Mutex("free").Lock(withTimeout(t, time.Minute)))
}

// A server that has no connection left is an outage, which a Lock rides out. What has one goes on.
func TestLock_onAServerThatIsFull(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t, testserver.MariaDBSettings("max-connections=10"))
	held := newClient(t, s.URL()).Mutex("x")
	require.NoError(t, held.Lock(t.Context()))
	db := pool(t, s.Addr(), "")
	var taken []*sql.Conn
	var err error
	for err == nil { // until none is left
		var c *sql.Conn
		if c, err = db.Conn(t.Context()); err == nil {
			taken = append(taken, c)
		}
	}
	require.ErrorContains(t, err, "Too many connections")
	err = newClient(t, s.URL()).Mutex("y").TryLock(t.Context())
	require.ErrorContains(t, err, "Too many connections")
	require.NotErrorIs(t, err, locker.ErrHeld)
	next := newClient(t, s.URL(), locker.WithTTL(time.Minute)).Mutex("y")
	locking := async(func() error { return next.Lock(t.Context()) })
	require.NoError(t, held.Extend(t.Context()))
	require.NoError(t, held.Unlock(t.Context()))
	select {
	case err := <-locking:
		require.Failf(t, "it did not wait", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	for _, c := range taken {
		_ = c.Raw(func(any) error { return sqldriver.ErrBadConn }) // which closes it
	}
	require.NoError(t, await(t, locking))
	require.NoError(t, next.Unlock(t.Context()))
}

// A firewall that has lost its table swallows what is sent on all present connections; new ones
// work. The first that does not answer takes the others with it: Lock and renewals go on.
func TestLock_whenAllConnectionsFallSilent(t *testing.T) {
	t.Parallel()
	s := testserver.SharedMariaDB(t)
	p := testserver.NewProxy(t, s.Addr())
	url := strings.Replace(s.URL(), s.Addr(), p.Addr(), 1)
	const ttl = 12 * time.Second
	c := newClient(t, url, locker.WithTTL(ttl))
	held := c.Mutex("held")
	require.NoError(t, held.Lock(t.Context()))
	connected(t, c, 8)
	p.HushConns()
	for i := range 3 {
		m := c.Mutex(fmt.Sprint(i))
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	}
	time.Sleep(ttl)
	require.NoError(t, held.Unlock(t.Context()))
}

// One connection is enough for all that a Client does. While the application has it nothing is
// answered, which is an error, not ErrHeld.
func TestNew_onAPoolThatIsExhausted(t *testing.T) {
	t.Parallel()
	s := testserver.SharedMariaDB(t)
	db := pool(t, s.Addr(), "")
	db.SetMaxOpenConns(1)
	c := newClientOver(t, db, locker.WithTTL(time.Minute))
	holder, waiter := c.Mutex("x"), c.Mutex("x")
	require.NoError(t, holder.Lock(t.Context()))
	waiting := async(func() error { return waiter.Lock(t.Context()) })
	require.NoError(t, holder.Extend(t.Context()))

	taken, err := db.Conn(t.Context())
	require.NoError(t, err)
	sqlcases.Unanswered(t, c, holder)
	require.NoError(t, taken.Close())
	require.NoError(t, holder.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	require.NoError(t, waiter.Unlock(t.Context()))
}

// What a connection writes that is in a transaction, or without autocommit, would be gone when it
// is. Another connection is made; if none is better, that is an error.
func TestNew_withoutAutocommit(t *testing.T) {
	t.Parallel()
	s := testserver.SharedMariaDB(t)
	for i, begin := range []string{"BEGIN", "SET autocommit = 0"} {
		db := pool(t, s.Addr(), "")
		prefix := locker.WithPrefix(harness.Space(t) + fmt.Sprint(i))
		sqlcases.Abandoned(t, newClientOver(t, db, prefix), newClient(t, s.URL(), prefix), db, begin)
	}
	err := newClientOver(t, pool(t, s.Addr(), "autocommit=0")).Mutex("x").TryLock(t.Context())
	require.ErrorContains(t, err, "autocommit")
	require.NotErrorIs(t, err, locker.ErrHeld)
}

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
