// Package sqltest_test tests package sqlfence on real databases: PostgreSQL, MariaDB and SQLite. It
// is not in package sqlfence, so that the module of that has no database driver in its go.mod.
package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // pgx
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The tests run one after another, and have the servers in common.
func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }

const patience = testwait.Patience(time.Minute)

// database is a real one.
type database struct {
	dialect sqlfence.Dialect
	levels  []level
	// open connects to it as level says; the level's database may be one of its own.
	open func(t *testing.T, level level) *sql.DB
	// waiting asks how many transactions wait for another's lock; nil where they fail instead.
	waiting string
	// code is what the database calls an error, and "" if it is none of the database's.
	code func(error) string
	// again are the codes by which it tells a transaction to come again.
	again []string
}

// level is a way to run transactions.
type level struct {
	name   string // as in the documentation
	tx     sql.IsolationLevel
	params string // of the data source name
}

func (l level) begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := l.tryBegin(t.Context(), db)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (l level) tryBegin(ctx context.Context, db *sql.DB) (*sql.Tx, error) {
	return db.BeginTx(ctx, &sql.TxOptions{Isolation: l.tx})
}

func postgres(t *testing.T) *database {
	server := testserver.SharedPostgres(t)
	return &database{
		dialect: sqlfence.Postgres,
		levels: []level{
			{name: "PostgreSQL, READ COMMITTED", tx: sql.LevelReadCommitted},
			{name: "PostgreSQL, REPEATABLE READ", tx: sql.LevelRepeatableRead},
			{name: "PostgreSQL, SERIALIZABLE", tx: sql.LevelSerializable},
		},
		open:    func(t *testing.T, _ level) *sql.DB { return connect(t, "pgx", server.URL()) },
		again:   []string{"40001", "40P01"}, // serialization_failure, deadlock_detected
		waiting: `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`,
		code: func(err error) string {
			if e, ok := errors.AsType[*pgconn.PgError](err); ok {
				return e.Code
			}
			return ""
		},
	}
}

func mariaDB(t *testing.T) *database {
	server := testserver.SharedMariaDB(t)
	return &database{
		dialect: sqlfence.MySQL,
		levels: []level{
			{name: "MariaDB, READ UNCOMMITTED", tx: sql.LevelReadUncommitted},
			{name: "MariaDB, READ COMMITTED", tx: sql.LevelReadCommitted},
			{name: "MariaDB, REPEATABLE READ", tx: sql.LevelRepeatableRead},
			{name: "the same, innodb_snapshot_isolation", tx: sql.LevelRepeatableRead, params: "innodb_snapshot_isolation=ON"},
			{name: "MariaDB, SERIALIZABLE", tx: sql.LevelSerializable},
		},
		open: func(t *testing.T, level level) *sql.DB {
			return connect(t, "mysql", fmt.Sprintf("root@tcp(%s)/locker?%s", server.Addr(), level.params))
		},
		again:   []string{"1213", "1020"}, // ER_LOCK_DEADLOCK, ER_CHECKREAD
		waiting: `SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'`,
		code: func(err error) string {
			if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
				return strconv.Itoa(int(e.Number))
			}
			return ""
		},
	}
}

func sqliteFile(t *testing.T) *database {
	dir := t.TempDir()
	return &database{
		dialect: sqlfence.SQLite,
		levels: []level{
			{name: "SQLite, rollback journal, BEGIN", params: "_pragma=journal_mode(DELETE)"},
			{name: "SQLite, WAL, BEGIN", params: "_pragma=journal_mode(WAL)"},
			{name: "SQLite, WAL, BEGIN IMMEDIATE", params: "_pragma=journal_mode(WAL)&_txlock=immediate"},
		},
		open: func(t *testing.T, level level) *sql.DB {
			name := strings.NewReplacer(" ", "-", ",", "").Replace(level.name)
			return connect(t, "sqlite", "file:"+filepath.Join(dir, name)+".db?"+level.params)
		},
		again: []string{"5", "517"}, // SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT
		code: func(err error) string {
			if e, ok := errors.AsType[*sqlite.Error](err); ok {
				return strconv.Itoa(e.Code())
			}
			return ""
		},
	}
}

// comeAgain reports whether err says that the transaction is to be tried again.
func (d *database) comeAgain(err error) bool { return slices.Contains(d.again, d.code(err)) }

// run runs a test on each database, whose tables it shares with those before and after it.
func run(t *testing.T, test func(t *testing.T, d *database)) {
	for name, start := range map[string]func(*testing.T) *database{
		"PostgreSQL": postgres, "MariaDB": mariaDB, "SQLite": sqliteFile,
	} {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

// runLevels runs a test on each level of each database, with tables of its own.
func runLevels(t *testing.T, test func(t *testing.T, d *database, l level, db *sql.DB)) {
	run(t, func(t *testing.T, d *database) {
		for _, l := range d.levels {
			t.Run(l.name, func(t *testing.T) { test(t, d, l, d.fresh(t, l)) })
		}
	})
}

func connect(t *testing.T, driver, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// fresh is a pool of connections, the guard table, and a table accounts, which is empty.
func (d *database) fresh(t *testing.T, l level) *sql.DB {
	t.Helper()
	db := d.open(t, l)
	for _, statement := range []string{
		`DROP TABLE IF EXISTS accounts`, `DROP TABLE IF EXISTS fencing_tokens`,
		`CREATE TABLE accounts (id INTEGER PRIMARY KEY, state VARCHAR(100), token BIGINT NOT NULL DEFAULT 0)`,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	require.NoError(t, d.table().Create(t.Context(), db))
	return db
}

func (d *database) table() sqlfence.Table { return sqlfence.Table{Dialect: d.dialect} }

func (d *database) column() sqlfence.Column {
	return sqlfence.Column{Dialect: d.dialect, Table: "accounts", Key: "id"}
}

// sql is a statement in the database's own notation of arguments.
func (d *database) sql(query string) string {
	if d.dialect != sqlfence.Postgres {
		return query
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", "$"+strconv.Itoa(n), 1)
	}
	return query
}

// update is the user's own statement, by the holder of token.
func (d *database) update(state string, token uint64) (query string, args []any) {
	return d.sql(`UPDATE accounts SET state = ?, token = ? WHERE id = ? AND token <= ?`), []any{state, token, 1, token}
}

func (d *database) exec(t *testing.T, db sqlfence.Querier, query string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), d.sql(query), args...)
	require.NoError(t, err, query)
}

// account is what is in the row by now.
func account(t *testing.T, db sqlfence.Querier) (state string, token uint64) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT state, token FROM accounts WHERE id = 1`).Scan(&state, &token))
	return state, token
}

// waits reports whether what done belongs to waits for another transaction, once that is settled.
func (d *database) waits(t *testing.T, db *sql.DB, done <-chan error) bool {
	t.Helper()
	var n int
	patience.Until(t, "it has ended or waits for another transaction", func() bool {
		if d.waiting != "" {
			require.NoError(t, db.QueryRowContext(t.Context(), d.waiting).Scan(&n))
		}
		return n > 0 || len(done) > 0
	})
	return len(done) == 0
}
