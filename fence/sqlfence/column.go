package sqlfence

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"

	"github.com/go-locker/locker/fence"
)

// ErrNoRow means that a statement wrote nothing although the token is not stale: the row is not
// there, or does not meet another condition of the statement.
var ErrNoRow = errors.New("no row was written, and the token is not the reason")

// Exec runs a statement that writes one row if the row's token allows, and keeps the token in it:
//
//	err := sqlfence.Exec(ctx, db, "orders/42", token,
//		`UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2`, "paid", token, 42)
//
// The column is BIGINT NOT NULL DEFAULT 0. One of args has to be the token. Exec checks only two
// things: this, and that the statement has no ON DUPLICATE KEY UPDATE. In PostgreSQL and SQLite the
// same statement can insert a row that may be missing:
//
//	INSERT INTO orders (id, state, token) VALUES ($1, $2, $3)
//	ON CONFLICT (id) DO UPDATE SET state = excluded.state, token = excluded.token
//	WHERE orders.token <= excluded.token
//
// In MySQL ON DUPLICATE KEY UPDATE takes no condition, and its count of rows does not show what was
// written, so Exec refuses it. First insert the row with token 0, without Exec, by a statement that
// changes nothing if the row is there:
//
//	INSERT INTO orders (id) VALUES (?) ON DUPLICATE KEY UPDATE id = id
//
// Then update the row with Exec, as above.
//
// If no row was written, the error is a *fence.StaleError, whatever the reason: the token is stale,
// the row is not there, or its token is NULL. In MySQL there is one more reason: a holder repeats a
// write that changes nothing. MySQL's drivers count only rows that changed, unless told otherwise
// (go-sql-driver: clientFoundRows=true). [Column.Exec] tells these reasons apart. If more than one
// row was written, Exec returns an error, but the rows are written: if that can happen, run Exec in
// a transaction, and roll back. After any other error the statement may have been applied.
func Exec(ctx context.Context, db Execer, resource string, token uint64, query string, args ...any) error {
	if err := checkStatement(resource, token, query, args); err != nil {
		return err
	}
	result, err := db.ExecContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("sqlfence: %q: %w", resource, err)
	}
	n, err := result.RowsAffected()
	switch {
	case err != nil:
		return fmt.Errorf("sqlfence: %q: whether the row was written is not known: %w", resource, err)
	case n == 0:
		return &fence.StaleError{Resource: resource, Token: token}
	case n > 1:
		return fmt.Errorf("sqlfence: %q: %d rows were written, and a statement has to write one: roll back", resource, n)
	}
	return nil
}

var onDuplicateKey = regexp.MustCompile(`(?i)\bon\s+duplicate\s+key\b`)

func checkStatement(resource string, token uint64, query string, args []any) error {
	if err := fence.Check(resource, token, 0); err != nil {
		return err
	}
	if err := checkRange(resource, token); err != nil {
		return err
	}
	if onDuplicateKey.MatchString(query) {
		return fmt.Errorf("sqlfence: %q: ON DUPLICATE KEY takes no condition, and its count of rows does not tell a "+
			"refused write: insert the row beforehand, with token 0, then update it", resource)
	}
	for _, arg := range args {
		if isToken(arg, token) {
			return nil
		}
	}
	return fmt.Errorf("sqlfence: %q: none of the statement's arguments is the token %d, so it cannot have been checked", resource, token)
}

// isToken reports whether database/sql would make of arg the number that is token.
func isToken(arg any, token uint64) bool {
	if named, ok := arg.(sql.NamedArg); ok {
		return isToken(named.Value, token)
	}
	value, err := driver.DefaultParameterConverter.ConvertValue(arg)
	return err == nil && value == int64(token)
}

// Column says where the rows of a table keep their tokens, so that [Column.Exec] can find out why a
// statement wrote nothing. The names are used unquoted.
type Column struct {
	Dialect Dialect
	Table   string // or schema.table
	Key     string // the column that tells rows apart
	Token   string // default "token"
}

// Exec does what the function [Exec] does, for the row whose key is key. If no row was written, it
// makes a second statement, and returns why. If the token is stale, the *fence.StaleError has the
// newest token. If the row is missing, the error is [ErrNoRow]. If the row's token is NULL, or is
// no token, the error is [fence.ErrUnknown]. A write of the same holder that MySQL does not count,
// because it changes nothing, is a success.
//
// In MySQL a statement with conditions other than key and token needs clientFoundRows=true. Without
// it, Exec cannot tell whether such a condition was false, or the write changed nothing. If the
// same holder has written before, Exec then returns nil, although nothing was written.
//
// If the second statement fails, so does Exec, and it is not known why nothing was written. In a
// transaction of MySQL the second statement locks the row, because only locking reads see the
// newest rows there.
func (c Column) Exec(ctx context.Context, db Querier, key any, token uint64, query string, args ...any) error {
	c.Token = cmp.Or(c.Token, "token")
	if err := c.check(); err != nil {
		return err
	}
	resource := fmt.Sprintf("%s/%v", c.Table, key)
	err := Exec(ctx, db, resource, token, query, args...)
	if token == 0 || !errors.Is(err, fence.ErrStale) {
		return err
	}
	return c.explain(ctx, db, resource, key, token)
}

func (c Column) check() error {
	return cmp.Or(
		c.Dialect.check(),
		checkName(tableName, "table", c.Table),
		checkName(columnName, "key column", c.Key),
		checkName(columnName, "token column", c.Token),
	)
}

// explain looks why a statement has not written the row. Tokens only rise: one that is found to be no larger than ours was
// none when the statement ran.
func (c Column) explain(ctx context.Context, db Querier, resource string, key any, token uint64) error {
	query := fmt.Sprintf("SELECT %s FROM %s WHERE %s = %s", c.Token, c.Table, c.Key, c.Dialect.placeholder(1))
	if c.Dialect == MySQL {
		// At REPEATABLE READ a plain one sees the transaction's snapshot, which may have our token in it where by
		// now there is a newer one.
		query += " FOR UPDATE"
	}
	var newest kept
	switch err := db.QueryRowContext(ctx, query, key).Scan(&newest); {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("sqlfence: %q: %w: there is none", resource, ErrNoRow)
	case err != nil:
		return fmt.Errorf("sqlfence: %q: no row was written, and looking why failed: %w", resource, err)
	case uint64(newest) > token:
		return &fence.StaleError{Resource: resource, Token: token, Newest: uint64(newest)}
	case uint64(newest) == token && c.Dialect == MySQL:
		counts, err := c.countsMatches(ctx, db, key)
		if err != nil {
			return fmt.Errorf("sqlfence: %q: no row was written, and looking why failed: %w", resource, err)
		}
		if !counts {
			return nil
		}
	}
	return fmt.Errorf("sqlfence: %q: %w: its token is %d, the write's %d", resource, ErrNoRow, newest, token)
}

// countsMatches reports whether the connection counts the rows that a statement finds, by one that finds ours and changes nothing.
// If it does not, the user's statement has found it too, and changed nothing for there was nothing to change.
func (c Column) countsMatches(ctx context.Context, db Querier, key any) (bool, error) {
	query := fmt.Sprintf("UPDATE %s SET %s = %s WHERE %s = ?", c.Table, c.Token, c.Token, c.Key)
	result, err := db.ExecContext(ctx, query, key)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
