package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-locker/locker/fence/sqlfence"
)

// Execer makes a [sqlfence.Execer] of a pgx.Tx, or of a pool or connection of pgx:
//
//	err := sqlfence.Exec(ctx, postgres.Execer(tx), "orders/42", token,
//		`UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2`, "paid", token, 42)
//
// A program that also has a *sql.DB can use one pool for both: make the *sql.DB of a pool of pgx,
// by OpenDBFromPool of pgx's package stdlib.
func Execer(on interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
},
) sqlfence.Execer {
	return execer{on.Exec}
}

type execer struct {
	exec func(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func (e execer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := e.exec(ctx, query, args...)
	return affected(tag.RowsAffected()), err
}

// affected is a sql.Result: how many rows were written.
type affected int64

func (a affected) RowsAffected() (int64, error) { return int64(a), nil }

func (affected) LastInsertId() (int64, error) { return 0, errors.ErrUnsupported }
