package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/sql/postgres"
)

// orders makes a table with one order, in the database of the locks.
func orders(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL, token bigint NOT NULL DEFAULT 0)")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "INSERT INTO orders VALUES (42, 'new')")
	require.NoError(t, err)
	return db
}

// pay writes an order under a token, in a transaction that may do more.
func pay(ctx context.Context, db *sql.DB, token uint64, state string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	err = sqlfence.Exec(ctx, tx, "orders/42", token, `UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2`, state, int64(token), 42)
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// payByPgx is pay in a transaction of pgx.
func payByPgx(ctx context.Context, pool *pgxpool.Pool, token uint64, state string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return sqlfence.Exec(ctx, postgres.Execer(tx), "orders/42", token,
			`UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2`, state, int64(token), 42)
	})
}

func stateOf(t *testing.T, db *sql.DB) (state string) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT state FROM orders WHERE id = 42").Scan(&state))
	return state
}

// A holder that does not notice that its lock has expired writes nothing once the next one has
// written.
func TestFence_aLateWriteIsRefused(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	db := orders(t, s.URL())
	first := newClient(t, s.URL(), locker.WithTTL(2*time.Second), locker.WithoutRenewal()).Mutex("orders/42")
	second := newClient(t, s.URL()).Mutex("orders/42")
	eventually(t, "there are tables", func() bool { return first.Lock(t.Context()) == nil })
	late := first.FencingToken() // and then it pauses
	require.NoError(t, second.Lock(t.Context()))
	require.NoError(t, pay(t.Context(), db, second.FencingToken(), "paid by the second"))
	err := pay(t.Context(), db, late, "paid by the first")
	require.ErrorIs(t, err, fence.ErrStale)
	assert.Equal(t, "paid by the second", stateOf(t, db))

	// So it is with pgx, and a *sql.DB may have the pool of the locks.
	pool, _ := poolOf(t, s.URL())
	db = stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	require.ErrorIs(t, payByPgx(t.Context(), pool, late, "paid by the first"), fence.ErrStale)
	require.NoError(t, payByPgx(t.Context(), pool, second.FencingToken(), "paid by the second, again"))
	assert.Equal(t, "paid by the second, again", stateOf(t, db))
	require.NoError(t, second.Unlock(t.Context()))
}

// When connections are cut, an advisory lock ends, and its holder, which works on another
// connection, goes on; so two write. Our hold goes on, and keeps the other out.
func TestFence_anAdvisoryLockIsLostWithItsConnection(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	db := orders(t, s.URL())
	const take = "SELECT pg_try_advisory_lock(42)"
	session, err := pgx.Connect(t.Context(), s.URL())
	require.NoError(t, err)
	defer func() { _ = session.Close(context.WithoutCancel(t.Context())) }()
	var got bool
	require.NoError(t, session.QueryRow(t.Context(), take).Scan(&got))
	require.True(t, got)
	m := newClient(t, s.URL()).Mutex("orders/42")
	require.NoError(t, m.Lock(t.Context()))

	cut, err := pgx.Connect(t.Context(), s.URL())
	require.NoError(t, err)
	defer func() { _ = cut.Close(context.WithoutCancel(t.Context())) }()
	_, err = cut.Exec(t.Context(), "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
	require.NoError(t, err)

	require.NoError(t, cut.QueryRow(t.Context(), take).Scan(&got))
	assert.True(t, got, "another has the advisory lock, and the first has not been told")
	require.ErrorIs(t, newClient(t, s.URL()).Mutex("orders/42").TryLock(t.Context()), locker.ErrHeld)
	eventually(t, "our hold goes on", func() bool { return m.Extend(t.Context()) == nil })
	eventually(t, "and writes", func() bool { return pay(t.Context(), db, m.FencingToken(), "paid") == nil })
	require.NoError(t, m.Unlock(t.Context()))
}
