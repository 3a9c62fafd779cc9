// Package sqlcases has the tests that all databases of package sqllock run.
package sqlcases

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sqllock"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testwait"
)

// Execute runs a statement of the test's own.
func Execute(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err, statement)
}

// Value returns what a query of the test's own has found.
func Value[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query, args...).Scan(&v), query)
	return v
}

// Released tests that a take which arrives after its claim was released takes nothing. While block
// has the database blocked, no take is answered.
func Released(t *testing.T, d driver.Driver, db *sql.DB, block func(name []byte) (unblock func())) {
	patience := testwait.Patience(20 * time.Second)
	req := driver.Request{Name: harness.Space(t), TTL: 20 * time.Second}
	first := d.Claim(req)
	_, err := first.Ask(t.Context()) // the tables and the row are there
	require.NoError(t, err)
	require.NoError(t, first.Release(t.Context()))

	unblock := block([]byte(req.Name))
	late := d.Claim(req)
	_, err = late.Ask(testwait.Context(t, 200*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, driver.ErrHeld)
	releasing := testwait.Go(func() error { return late.Release(t.Context()) }) // on another connection: one of the two comes first
	unblock()
	require.NoError(t, patience.Result(t, releasing))
	assert.Greater(t, Value[uint64](t, db, "SELECT token FROM locker_locks WHERE name = ?", []byte(req.Name)), first.Token(),
		"a take that comes after the release finds another token than it was sent with")
	patience.Until(t, "it is free", func() bool {
		state, err := d.(driver.Operator).Inspect(t.Context(), req.Name)
		return err == nil && !state.Held
	})
	next := d.Claim(req)
	_, err = next.Ask(testwait.Context(t, 20*time.Second))
	require.NoError(t, err, "whichever came first, nothing is left")
	assert.Greater(t, next.Token(), first.Token())
	require.NoError(t, next.Release(t.Context()))
}

// Unanswered tests that ctx ends a request that is not answered, which says nothing of the lock.
func Unanswered(t *testing.T, c *locker.Client, held *locker.Mutex) {
	t.Helper()
	for name, call := range map[string]func(context.Context) error{
		"Lock": c.Mutex("free").Lock, "TryLock": c.Mutex("free too").TryLock, "Extend": held.Extend,
	} {
		err := call(testwait.Context(t, 100*time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.NotErrorIs(t, err, locker.ErrHeld, name)
		require.NotErrorIs(t, err, locker.ErrLost, name)
	}
}

// Abandoned tests that a connection which was given back to db as begin leaves it, inside a
// transaction, decides nothing. c is a Client over db, and other has connections of its own.
func Abandoned(t *testing.T, c, other *locker.Client, db *sql.DB, begin string) {
	abandon := func() {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), begin)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	db.SetMaxOpenConns(1)
	m := c.Mutex("abandoned")
	for range 2 { // the first makes tables
		abandon()
		require.NoError(t, m.Lock(testwait.Context(t, 20*time.Second)), begin)
		require.ErrorIs(t, other.Mutex("abandoned").TryLock(t.Context()), locker.ErrHeld, begin)
		abandon()
		require.NoError(t, m.Extend(t.Context()), begin)
		abandon()
		state, err := c.Inspect(t.Context(), "abandoned")
		require.NoError(t, err)
		require.True(t, state.Held, "it reads what is there now")
		abandon()
		require.NoError(t, m.Unlock(t.Context()), begin)
		next := other.Mutex("abandoned")
		require.NoError(t, next.TryLock(testwait.Context(t, 20*time.Second)), begin)
		require.NoError(t, next.Unlock(t.Context()))
	}
}

// Sweep tests that names which come and go leave no rows in these tables, which no other test has,
// and that their tokens go on rising, though the wall clock was set back.
func Sweep(t *testing.T, d driver.Driver, db *sql.DB, locks, waiters string) {
	const ttl = 2 * time.Minute
	take := func(name string) driver.Claim {
		c := d.Claim(driver.Request{Name: name, TTL: ttl})
		_, err := c.Ask(t.Context())
		require.NoError(t, err)
		return c
	}
	held := take("held")
	for i := range 20 {
		require.NoError(t, take(fmt.Sprint(i)).Release(t.Context()))
	}
	const future = 1 << 60
	Execute(t, db, "UPDATE "+locks+" SET token = ? WHERE name = ?", future, []byte("7"))
	Execute(t, db, "INSERT INTO "+waiters+" SELECT lock_key, 1, X'78', '', 0 FROM "+locks+" WHERE name = ?", []byte("7"))
	rows := func() int { return Value[int](t, db, "SELECT count(*) FROM "+locks+" WHERE lock_key <> X''") }
	sweep := func(idle time.Duration) {
		for range 2 { // from somewhere to the end, and from the beginning
			require.NoError(t, d.(*sqllock.Driver).Sweep(t.Context(), idle))
		}
	}
	sweep(sqllock.Idle)
	assert.Equal(t, 21, rows(), "they were used a moment ago")
	assert.Zero(t, Value[int](t, db, "SELECT count(*) FROM "+waiters), "who died is gone")
	sweep(-time.Hour) // as if in an hour
	assert.Equal(t, 1, rows(), "one is held")
	require.NoError(t, held.Extend(t.Context(), ttl))
	again := take("7")
	assert.Greater(t, again.Token(), uint64(future))
	require.NoError(t, again.Release(t.Context()))
	require.NoError(t, held.Release(t.Context()))
}
