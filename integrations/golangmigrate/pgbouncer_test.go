package golangmigrate_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/integrations/golangmigrate"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// OpenThroughPgBouncer makes migrate's driver through a pooler in transaction mode. Each connection
// begins a transaction, so that the driver takes and releases its own lock on one connection of the
// server. The transaction ends when the driver is made.
func OpenThroughPgBouncer(url string) (database.Driver, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // no statements that are prepared on one connection
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "BEGIN")
		return err
	}))
	d, err := migratepgx.WithInstance(db, &migratepgx.Config{})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return d, d.Run(strings.NewReader("COMMIT"))
}

// A pooler in transaction mode has each statement run on any of its connections: here there is one.
func TestPgBouncer_theDriversOwnLockExcludesNobody(t *testing.T) {
	testwait.OnlyNightly(t, "it is a server more")
	t.Parallel()
	url := testserver.PgBouncer(t, testserver.Postgres(t), 1).URL()
	for range 2 {
		d, err := OpenThroughPgBouncer(url)
		require.NoError(t, err)
		t.Cleanup(func() { _ = d.Close() })
		require.NoError(t, d.Lock(), "both hold it")
	}
}

// With several connections it stays for ever: what it was taken on is not what it is released on.
func TestPgBouncer_theDriversOwnLockStays(t *testing.T) {
	testwait.OnlyNightly(t, "it is a server more")
	t.Parallel()
	server := testserver.Postgres(t)
	url := testserver.PgBouncer(t, server, 2).URL()
	first, err := OpenThroughPgBouncer(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = first.Close() })
	other, err := sql.Open("pgx/v5", url+"&default_query_exec_mode=exec")
	require.NoError(t, err)
	defer other.Close()

	require.NoError(t, first.Lock())
	var tx []*sql.Tx // another program of the pooler has the connection with the lock
	defer func() {
		for _, tx := range tx {
			_ = tx.Rollback()
		}
	}()
	one, err := other.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	tx = append(tx, one)
	var locks int
	require.NoError(t, one.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(&locks))
	require.Equal(t, 1, locks, "the pooler gives out the connection that was used last")
	require.NoError(t, first.Unlock(), "migrate does not look at what the server says")
	require.NoError(t, one.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(&locks))
	assert.Equal(t, 1, locks, "nobody holds it, and nobody can take it")
}

func TestPgBouncer_withALockOfOursEachMigrationIsAppliedOnce(t *testing.T) {
	testwait.OnlyNightly(t, "it is a server more")
	t.Parallel()
	server := testserver.Postgres(t)
	url, lock := testserver.PgBouncer(t, server, 3).URL(), testserver.SharedRedis(t).URL()+"?prefix="+space()
	severalUp(t, 5, lock, target{golangmigrate.Postgres, server.URL()}, func() database.Driver {
		inner, err := OpenThroughPgBouncer(url)
		require.NoError(t, err)
		t.Cleanup(func() { _ = inner.Close() })
		return inner
	})
}
