// Package sqlfence lets a SQL database refuse writes whose fencing token is stale, over database/sql.
// There are two ways, for PostgreSQL, MySQL and MariaDB, and SQLite:
//
//   - [Exec] and [Column]: the row that is written has a column for the newest token, and the statement that
//     writes it has the token as a condition. One statement, one round trip.
//   - [Table]: a table has the newest token of each resource, and [Table.Admit] checks and raises it in
//     the transaction of the writes. For more than one row, and for tables that cannot get a column.
//
// Tokens are kept as BIGINT, so that the largest is 2^63-1; a larger one is refused before anything is sent.
package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"regexp"
)

// Querier is what this package needs of a [*sql.DB], a [*sql.Conn] or a [*sql.Tx].
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Dialect is whose SQL it is.
type Dialect int

// The databases whose SQL is known.
const (
	Postgres Dialect = iota + 1
	MySQL            // and MariaDB
	SQLite
)

// String is the database's name.
func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	case SQLite:
		return "SQLite"
	default:
		return fmt.Sprintf("Dialect(%d)", int(d))
	}
}

func (d Dialect) check() error {
	if d < Postgres || d > SQLite {
		return fmt.Errorf("sqlfence: %v is no dialect: set Postgres, MySQL or SQLite", d)
	}
	return nil
}

// placeholder is that of the first argument.
func (d Dialect) placeholder() string {
	if d == Postgres {
		return "$1"
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

// checkRange refuses what BIGINT cannot hold. Drivers differ in what they do with it.
func checkRange(resource string, token uint64) error {
	if token > math.MaxInt64 {
		return fmt.Errorf("sqlfence: %q: token %d does not fit into BIGINT, which ends at %d", resource, token, math.MaxInt64)
	}
	return nil
}
