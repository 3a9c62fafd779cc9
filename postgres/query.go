package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// query runs a statement on a connection of the pool, and gives its rows to collect.
//
// pgx prepares a statement on a connection and then runs it by its name. A pooler in transaction mode may have another connection to
// the server run it, which does not know the name, or has it from another client. Nothing has run then, and from there on this
// Driver prepares nothing.
//
// What failed because of another's transaction has not run either.
func (d *Driver) query(ctx context.Context, collect func(pgx.Rows) error, sql string, args []any) error {
	for {
		err := d.queryOnce(ctx, collect, sql, args)
		if !isCode(err, "40001", "40P01") || ctx.Err() != nil {
			return err
		}
	}
}

func (d *Driver) queryOnce(ctx context.Context, collect func(pgx.Rows) error, sql string, args []any) error {
	if !d.unnamed.Load() {
		rows, _ := d.pool.Query(ctx, sql, args...) // collect has the error
		err := collect(rows)
		if !isCode(err, "26000", "42P05") {
			return err
		}
		d.unnamed.Store(true)
	}
	rows, _ := d.pool.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	return collect(rows)
}

// read makes a request that changes nothing again while all that is wrong with it is its connection, which the pool has had since before the
// server was restarted, or shut it.
func (d *Driver) read(ctx context.Context, f func() error) error {
	for left := d.pool.Stat().TotalConns(); ; left-- {
		err := f()
		_, answered := errors.AsType[*pgconn.PgError](err)
		_, refused := errors.AsType[*pgconn.ConnectError](err)
		if err == nil || answered && !isCode(err, "57P01") || refused || errors.Is(err, pgx.ErrNoRows) || left <= 0 || ctx.Err() != nil {
			return err
		}
	}
}

// exec runs a statement without a result.
func (d *Driver) exec(ctx context.Context, sql string, args ...any) error {
	_, err := d.affect(ctx, sql, args...)
	return err
}

// affect returns how many rows a statement has written.
func (d *Driver) affect(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = d.query(ctx, func(rows pgx.Rows) error {
		rows.Close()
		n = rows.CommandTag().RowsAffected()
		return rows.Err()
	}, sql, args)
	return n, err
}

// row runs a statement whose result is one row. Its Scan returns pgx.ErrNoRows if there is none.
func (d *Driver) row(ctx context.Context, sql string, args ...any) row {
	return func(dest ...any) error {
		return d.query(ctx, func(rows pgx.Rows) error {
			defer rows.Close()
			if !rows.Next() {
				if err := rows.Err(); err != nil {
					return err
				}
				return pgx.ErrNoRows
			}
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		}, sql, args)
	}
}

type row func(dest ...any) error

func (r row) Scan(dest ...any) error { return r(dest...) }

// didNothing reports whether a statement has changed nothing for certain: it was not sent, has found no row, or was undone by the server. A server that
// shuts down may have a connection end after the statement's commit.
func didNothing(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrNoRows) || pgconn.SafeToRetry(err)
}

func noTable(err error) bool { return isCode(err, "42P01") }

func isCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, e.Code)
}
