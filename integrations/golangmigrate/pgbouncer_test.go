package golangmigrate_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/freshdb"
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

func TestPgBouncer_withALockOfOursEachMigrationIsAppliedOnce(t *testing.T) {
	testwait.OnlyNightly(t, "it is a server more")
	t.Parallel()
	server := testserver.Postgres(t)
	url := testserver.PgBouncer(t, server, 3).URL()
	d := freshdb.Database{Dialect: sqlfence.Postgres, Driver: "pgx", DSN: server.URL(), Locks: "mem://pgbouncer"}
	severalUp(t, 5, d, func() database.Driver {
		return testwait.Closed(OpenThroughPgBouncer(url))(t)
	})
}
