package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/postgres"
)

// A pair of Lock and Unlock, beside a pair of the server's own advisory lock on a connection of its own. The server writes to memory.
func BenchmarkPair(b *testing.B) {
	url := testserver.SharedPostgres(b).URL()
	b.Run("locker", func(b *testing.B) {
		c := newClient(b, url, locker.WithoutRenewal())
		pairs(b, c.Mutex("x"))
	})
	b.Run("advisory", func(b *testing.B) {
		conn, err := pgxpool.New(b.Context(), url+"&pool_max_conns=1")
		require.NoError(b, err)
		defer conn.Close()
		for b.Loop() {
			_, err := conn.Exec(b.Context(), "SELECT pg_try_advisory_lock(1)")
			require.NoError(b, err)
			_, err = conn.Exec(b.Context(), "SELECT pg_advisory_unlock(1)")
			require.NoError(b, err)
		}
	})
	b.Run("TryLock", func(b *testing.B) {
		pool, _ := poolOf(b, url)
		c, err := postgres.New(pool, locker.WithoutRenewal())
		require.NoError(b, err)
		defer func() { _ = c.Close() }()
		m := c.Mutex("y")
		for b.Loop() {
			require.NoError(b, m.TryLock(b.Context()))
			require.NoError(b, m.Unlock(b.Context()))
		}
	})
}

func pairs(b *testing.B, m *locker.Mutex) {
	b.Helper()
	for b.Loop() {
		require.NoError(b, m.Lock(b.Context()))
		require.NoError(b, m.Unlock(b.Context()))
	}
}
