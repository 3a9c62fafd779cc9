package mysql_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/sqlcases"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/sql/mysql"
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

// A Lock that is waiting to join the queue when its ctx ends has heard who holds the lock.
func TestLock_isCancelledWhileItJoinsTheQueue(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	db := pool(t, s.Addr(), "")
	m := newClient(t, s.URL(), locker.WithPrefix("p")).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	key := sha256.Sum256([]byte("p:x"))
	unlock := lockRows(t, db, "locker_locks_waiters WHERE lock_key = ?", key[:]) // the gap where rows would go
	ctx, cancel := context.WithCancel(t.Context())
	locking := async(func() error { return newClient(t, s.URL(), locker.WithPrefix("p")).Mutex("x").Lock(ctx) })
	blocked(t, db, "REPLACE")
	cancel()
	err := await(t, locking)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, locker.ErrHeld)
	unlock()
	require.NoError(t, m.Unlock(t.Context()))
}

func TestOutage_isRiddenOutForHalfATTL(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	harness.Outage(t, s.URL(), s.Kill)
}

// A connection that breaks while a take is under way is an outage, which a Lock rides out. Whether
// the take was done is seen by its owner.
func TestLock_whoseConnectionBreaks(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t, testserver.MariaDBDurable)
	db := pool(t, s.Addr(), "")
	c := newClient(t, s.URL(), locker.WithPrefix("p"), locker.WithTTL(time.Minute))
	require.NoError(t, c.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }))
	for name, end := range map[string]func(id int){
		"it is killed": func(id int) { execute(t, db, fmt.Sprintf("KILL %d", id)) },
		"the server restarts": func(int) {
			s.Kill()
			s.Restart()
		},
	} {
		m := newClient(t, s.URL(), locker.WithPrefix("p"), locker.WithTTL(time.Minute)).Mutex("x")
		unlock := lockRows(t, db, "locker_locks WHERE name = 'p:x'")
		locking := async(func() error { return m.Lock(t.Context()) })
		end(blocked(t, db, "UPDATE"))
		unlock()
		require.NoError(t, await(t, locking), name)
		require.NoError(t, m.Unlock(t.Context()), name)
	}
}

// While somebody keeps the server from writing, as a backup does, nothing is granted, and what was
// given up does not stay there.
func TestLock_whileNobodyMayWrite(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	db := pool(t, s.Addr(), "")
	m := newClient(t, s.URL()).Mutex("x")
	require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
	backup, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = backup.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	locking := async(func() error { return m.Lock(ctx) })
	blocked(t, db, "UPDATE")
	cancel()
	err = await(t, locking)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, locker.ErrHeld)
	eventually(t, "nothing waits at the server", func() bool {
		return sqlcases.Value[int](t, db, "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE%'") == 0
	})
	_, err = backup.ExecContext(t.Context(), "UNLOCK TABLES")
	require.NoError(t, err)
	require.NoError(t, backup.Close())
	require.NoError(t, m.Lock(withTimeout(t, time.Minute)))
	require.NoError(t, m.Unlock(t.Context()))
}

// A server that has no connection left is an outage, which a Lock rides out. What has one goes on.
func TestLock_onAServerThatIsFull(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t, testserver.MariaDBSettings("max-connections=10"))
	holder := newClient(t, s.URL())
	var holds []*locker.Mutex
	for i := range 10 {
		holds = append(holds, holder.Mutex(fmt.Sprint(i)))
		require.NoError(t, holds[i].Lock(t.Context()))
	}
	db := pool(t, s.Addr(), "")
	var taken []*sql.Conn
	for {
		c, err := db.Conn(t.Context())
		if err != nil {
			require.ErrorContains(t, err, "Too many connections")
			break
		}
		taken = append(taken, c)
	}
	err := newClient(t, s.URL()).Mutex("y").TryLock(t.Context())
	require.ErrorContains(t, err, "Too many connections")
	require.NotErrorIs(t, err, locker.ErrHeld)
	next := newClient(t, s.URL(), locker.WithTTL(time.Minute)).Mutex("y")
	locking := async(func() error { return next.Lock(t.Context()) })
	var done []<-chan error
	for _, m := range holds {
		done = append(done, async(func() error { return errors.Join(m.Extend(t.Context()), m.Unlock(t.Context())) }))
	}
	for _, d := range done {
		require.NoError(t, await(t, d))
	}
	select {
	case err := <-locking:
		require.Failf(t, "it did not wait", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, db.Close())
	for _, c := range taken {
		_ = c.Close()
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
	var looking []<-chan error
	for range 8 { // so many connections
		looking = append(looking, async(func() error { _, err := c.Inspect(t.Context(), "x"); return err }))
	}
	for _, done := range looking {
		require.NoError(t, await(t, done))
	}
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
	c, err := mysql.New(db, locker.WithTTL(time.Minute), locker.WithPrefix(harness.Space(t)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	holder, waiter := c.Mutex("x"), c.Mutex("x")
	require.NoError(t, holder.Lock(t.Context()))
	waiting := async(func() error { return waiter.Lock(t.Context()) })
	require.NoError(t, holder.Extend(t.Context()))

	taken, err := db.Conn(t.Context())
	require.NoError(t, err)
	ctx := withTimeout(t, 100*time.Millisecond)
	for name, call := range map[string]func(context.Context) error{"Lock": c.Mutex("y").Lock, "TryLock": c.Mutex("y").TryLock, "Extend": holder.Extend} {
		err := call(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.NotErrorIs(t, err, locker.ErrHeld, name)
		require.NotErrorIs(t, err, locker.ErrLost, name)
	}
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
		c, err := mysql.New(db, locker.WithTTL(20*time.Second), prefix)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		sqlcases.Abandoned(t, c, newClient(t, s.URL(), prefix), db, begin)
	}
	c, err := mysql.New(pool(t, s.Addr(), "autocommit=0"), locker.WithPrefix(harness.Space(t)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	err = c.Mutex("x").TryLock(t.Context())
	require.ErrorContains(t, err, "autocommit")
	require.NotErrorIs(t, err, locker.ErrHeld)
}
