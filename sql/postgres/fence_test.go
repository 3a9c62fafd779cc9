package postgres_test

import (
	"context"
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
func orders(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	script(t, url, `CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL, token bigint NOT NULL DEFAULT 0);
		INSERT INTO orders VALUES (42, 'new')`)
	pool, _ := poolOf(t, url)
	return pool
}

// pay writes an order under a token.
func pay(ctx context.Context, on sqlfence.Execer, token uint64, state string) error {
	return sqlfence.Exec(ctx, on, "orders/42", token, `UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2`, state, int64(token), 42)
}

// A holder that does not notice that its lock has expired writes nothing once the next one has
// written. A *sql.DB may have the pool of the locks.
func TestFence_aLateWriteIsRefused(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	pool := orders(t, s.URL())
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	first := newClient(t, s.URL(), locker.WithTTL(2*time.Second), locker.WithoutRenewal()).Mutex("orders/42")
	second := newClient(t, s.URL()).Mutex("orders/42")
	eventually(t, "there are tables", func() bool { return first.Lock(t.Context()) == nil })
	late := first.FencingToken() // and then it pauses
	require.NoError(t, second.Lock(t.Context()))
	for by, on := range map[string]sqlfence.Execer{"database/sql": db, "pgx": postgres.Execer(pool)} {
		require.NoError(t, pay(t.Context(), on, second.FencingToken(), "paid by the second, by "+by))
		require.ErrorIs(t, pay(t.Context(), on, late, "paid by the first"), fence.ErrStale)
		assert.Equal(t, "paid by the second, by "+by, value[string](t, s.URL(), "SELECT state FROM orders"))
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return pay(t.Context(), postgres.Execer(tx), second.FencingToken(), "paid in a transaction")
	}))
	require.NoError(t, second.Unlock(t.Context()))
}

// When connections are cut, an advisory lock ends, and its holder, which works on another
// connection, goes on; so two write. Our hold goes on, and keeps the other out.
func TestFence_anAdvisoryLockIsLostWithItsConnection(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	pool := orders(t, s.URL())
	const take = "SELECT pg_try_advisory_lock(42)"
	var got bool
	require.NoError(t, session(t, s.URL()).QueryRow(t.Context(), take).Scan(&got))
	require.True(t, got)
	m := newClient(t, s.URL()).Mutex("orders/42")
	require.NoError(t, m.Lock(t.Context()))

	cut := session(t, s.URL())
	_, err := cut.Exec(t.Context(), "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
	require.NoError(t, err)

	require.NoError(t, cut.QueryRow(t.Context(), take).Scan(&got))
	assert.True(t, got, "another has the advisory lock, and the first has not been told")
	require.ErrorIs(t, newClient(t, s.URL()).Mutex("orders/42").TryLock(t.Context()), locker.ErrHeld)
	eventually(t, "our hold goes on", func() bool { return m.Extend(t.Context()) == nil })
	eventually(t, "and writes", func() bool { return pay(t.Context(), postgres.Execer(pool), m.FencingToken(), "paid") == nil })
	require.NoError(t, m.Unlock(t.Context()))
}
