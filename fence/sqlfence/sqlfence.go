// Package sqlfence lets a SQL database refuse writes whose fencing token is stale, over
// database/sql. There are two ways, for PostgreSQL, MySQL and MariaDB, and SQLite:
//
//   - [Exec] and [Column]: the row that is written has a column for the newest token, and the
//     statement that writes it has the token as a condition. One statement, one round trip.
//   - [Table]: a table has the newest token of each resource, and [Table.Admit] checks and raises
//     it in the transaction of the writes. For more than one row, and for tables that cannot get a
//     column.
//
// [Table.Guard] uses such a table for a resource that is not in the database.
//
// The tests on real servers are in bench/sqltest of the repository. That is a module of its own, so
// that this one has no database driver in its go.mod.
//
// Tokens are kept as BIGINT, so that the largest is 2^63-1; a larger one is refused before anything
// is sent.
//
// # Isolation levels
//
// Both ways hold at every isolation level. The levels differ in what happens to a write that
// conflicts with another: it is refused with [fence.ErrStale], or it fails with an error of the
// database, and the whole transaction is to be tried again. This was seen on PostgreSQL 15, MariaDB
// 10.11 and SQLite 3. Each line is about two transactions that write one row. One of them, called
// the older, has a smaller token:
//
//	                                     the older reads first      both write        error
//	                                                                at once           codes
//	                                     check    Exec     Admit    Exec     Admit
//	PostgreSQL, READ COMMITTED           LOST     refused  refused  waits    waits
//	PostgreSQL, REPEATABLE READ          retry    retry    retry    retry    retry    40001
//	PostgreSQL, SERIALIZABLE             retry    retry    retry    retry    retry    40001
//	MariaDB, READ UNCOMMITTED            LOST     refused  refused  waits    waits
//	MariaDB, READ COMMITTED              LOST     refused  refused  waits    waits
//	MariaDB, REPEATABLE READ             LOST     refused  refused  waits    waits
//	the same, innodb_snapshot_isolation  retry    retry    retry    waits    waits    1020
//	MariaDB, SERIALIZABLE                retry    retry    retry    waits    waits    1213
//	SQLite, rollback journal, BEGIN      waits    waits    waits    retry    retry    5
//	SQLite, WAL, BEGIN                   retry    retry    retry    retry    retry    517, 5
//	SQLite, WAL, BEGIN IMMEDIATE         waits    waits    waits    retry    retry    5
//
// In the first three columns the older transaction reads the row, and is paused. Then the newer one
// writes and commits, if the database lets it, and the older one writes. "check" is what not to
// do: SELECT the token, compare, UPDATE. LOST: the newer write was overwritten. Without a
// transaction around SELECT and UPDATE, it is overwritten on every database, at every level. In the
// two columns "both write at once", each transaction begins with its write. The newer one begins
// while the older is open. In all columns
//
//   - refused is [fence.ErrStale];
//   - retry is an error of the database. (In the columns of "both at once" the newer transaction
//     gets it.) Nothing was written: roll back, and run the whole transaction again with the same
//     token. If the token is stale, it is refused then;
//   - waits means that the newer write waited for the older one to commit, and came after it.
//     SQLite waits for as long as busy_timeout allows, and then fails with 5 (SQLITE_BUSY). In this
//     test busy_timeout was 0: the newer transaction failed with 5 at once, and was run again when
//     the older one had committed.
//
// At SERIALIZABLE and at PostgreSQL's REPEATABLE READ the error may come with any statement, and
// with Commit. MariaDB and PostgreSQL may find a deadlock (1213, 40P01) at any level. In SQLite, if
// a transaction reads before it writes, begin it with BEGIN IMMEDIATE. Otherwise 517
// (SQLITE_BUSY_SNAPSHOT) may come, whatever busy_timeout is.
//
// # Lost replies
//
// If the reply to a statement or to Commit is lost, what it wrote may be there. A fence does not
// tell a repetition from another write of the same holder, and lets it through. So a write that
// sets values may be repeated, but one that adds to them would add twice.
package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"regexp"

	"github.com/go-locker/locker/fence"
)

// Querier is what this package needs of a [*sql.DB], a [*sql.Conn] or a [*sql.Tx].
type Querier interface {
	Execer
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Execer is what [Exec] needs of a *sql.DB, a *sql.Conn or a *sql.Tx. For pgx, postgres.Execer
// turns a pgx.Tx into an Execer.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Dialect is the kind of SQL that a database understands: the name of the database.
type Dialect string

// The databases whose SQL is known.
const (
	Postgres Dialect = "PostgreSQL"
	MySQL    Dialect = "MySQL" // and MariaDB, on which it is tested
	SQLite   Dialect = "SQLite"
)

func (d Dialect) check() error {
	switch d {
	case Postgres, MySQL, SQLite:
		return nil
	}
	return fmt.Errorf("sqlfence: %q is no dialect: set Postgres, MySQL or SQLite", string(d))
}

// placeholder returns that of the nth argument.
func (d Dialect) placeholder(n int) string {
	if d == Postgres {
		return fmt.Sprint("$", n)
	}
	return "?"
}

// Names go into statements as they are, unquoted, so that they mean what they mean in the user's own.
var (
	columnName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
	tableName  = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)
)

func checkName(valid *regexp.Regexp, what, name string) error {
	if !valid.MatchString(name) {
		return fmt.Errorf("sqlfence: %s %q: want letters of ASCII, digits and _, not beginning with a digit, 63 at most", what, name)
	}
	return nil
}

// kept is the token that a row has.
type kept uint64

// Scan implements [sql.Scanner].
func (k *kept) Scan(value any) error {
	var n sql.Null[uint64]
	if err := n.Scan(value); err != nil {
		return fmt.Errorf("%w: %w", fence.ErrUnknown, err)
	}
	if !n.Valid {
		return fmt.Errorf("%w: it is NULL; declare the column NOT NULL DEFAULT 0", fence.ErrUnknown)
	}
	*k = kept(n.V)
	return nil
}

// checkRange refuses what BIGINT cannot hold. Drivers differ in what they do with it.
func checkRange(resource string, token uint64) error {
	if token > math.MaxInt64 {
		return fmt.Errorf("sqlfence: %q: token %d does not fit into BIGINT, which ends at %d", resource, token, int64(math.MaxInt64))
	}
	return nil
}
