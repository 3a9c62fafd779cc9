package postgres

import (
	"cmp"
	"context"
	"errors"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-locker/locker/internal/noanswer"
)

// query runs a statement on a connection of the pool, and gives its rows to collect.
//
// The statement is not prepared: it is planned for the tables as they are now.
//
// A statement that failed because of another transaction changed nothing, and is retried. So is one
// that was refused because the server takes no writes: the server was the primary once, and other
// connections of the pool may be just as old.
func (d *backend) query(ctx context.Context, pool *pgxpool.Pool, collect func(pgx.Rows) error, sql string, args []any) error {
	for tries := 1; ; tries++ {
		err := d.queryOnce(ctx, pool, collect, sql, args)
		if !d.again(ctx, err, tries) {
			return err
		}
	}
}

// queryFor is query, and returns what the last attempt has collected, and nothing of earlier ones.
func queryFor[T any](ctx context.Context, d *backend, pool *pgxpool.Pool, collect func(pgx.Rows) (T, error), sql string, args ...any) (last T, err error) {
	err = d.query(ctx, pool, func(rows pgx.Rows) (err error) {
		last, err = collect(rows)
		return err
	}, sql, args)
	return last, err
}

// again reports whether a failed request changed nothing, and an immediate retry may succeed.
func (d *backend) again(ctx context.Context, err error, tries int) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	if isCode(err, "40001", "23505") { // which READ COMMITTED does not have
		d.strict.Store(true)
	}
	// A pooler in transaction mode may execute a prepared statement on another server connection, which
	// does not know its name, or has it from another client. Nothing has run then, and from there on
	// this Driver prepares nothing.
	if isCode(err, "26000", "42P05") {
		d.unnamed.Store(true)
		return tries <= 2 // one more that was prepared may be on its way
	}
	if errors.Is(err, errNotSent) && broken(err) && tries <= int(d.pool.Stat().MaxConns()) {
		return true
	}
	if isCode(err, "40001", "40P01", "23505", rowLocked) {
		return tries <= mostRetries && pause(ctx, tries)
	}
	return isCode(err, readOnly) && tries <= int(d.pool.Stat().MaxConns())
}

// pause backs off for some milliseconds, longer with each try, and reports whether the context still
// allows another.
func pause(ctx context.Context, tries int) bool {
	d := time.Duration(min(tries, 50)) * time.Millisecond
	select {
	case <-time.After(d/2 + mrand.N(d)):
		return true
	case <-ctx.Done():
		return false
	}
}

const (
	rowLocked   = "55P03" // by another transaction, for longer than a function waits
	mostRetries = 100     // of a request that conflicts with other transactions
)

// readOnly is the code of a server that takes no writes: a standby, or what was the primary before
// a failover.
const readOnly = "25006"

// queryOnce runs a statement once. It closes a connection that leads to a server without writes.
func (d *backend) queryOnce(ctx context.Context, pool *pgxpool.Pool, collect func(pgx.Rows) error, sql string, args []any) (err error) {
	began := time.Now()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		d.ifSilent(ctx, began, nil, err)
		return err
	}
	defer func() {
		d.ifSilent(ctx, began, conn, err)
		conn.Release()
	}()
	rows, _ := conn.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...) // collect has the error
	err = collect(rows)
	if isCode(err, readOnly) {
		closeConn(conn.Conn())
	}
	return err
}

// longSilence is how old a request is at least before connections are left that do not answer.
const longSilence = 900 * time.Millisecond

// ifSilent has connections closed if a request that began at began, and ended with err, was not
// answered in time: its own, if it had one, for which pgx would wait 15 s in vain, and those that
// nobody uses, which may be just as silent, as behind a firewall that has lost its table. It closes
// none if all are in use, which is another reason to get none.
func (d *backend) ifSilent(ctx context.Context, began time.Time, conn *pgxpool.Conn, err error) {
	if err == nil || answeredBy(err) || !errors.Is(ctx.Err(), context.DeadlineExceeded) || time.Since(began) < longSilence {
		return
	}
	if conn != nil {
		_ = conn.Conn().PgConn().Conn().Close()
	}
	if s := d.pool.Stat(); conn != nil || s.AcquiredConns() < s.MaxConns() {
		d.pool.Reset()
	}
	if pool := d.reserve.pool.Load(); pool != nil {
		pool.Reset()
	}
}

// spare returns the pool for renewals and releases, which must not wait until the application, or
// many Locks, give back a connection: the Driver's pool, or the reserve if all of the pool's are in
// use.
func (d *backend) spare() *pgxpool.Pool {
	if s := d.pool.Stat(); s.AcquiredConns() < s.MaxConns() {
		return d.pool
	}
	return d.inReserve()
}

// inReserve returns the reserve: a pool of one connection.
func (d *backend) inReserve() *pgxpool.Pool {
	d.reserve.once.Do(func() {
		config := d.pool.Config()
		config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
		config.MaxConnIdleTime = reserveIdle
		config.HealthCheckPeriod = reserveIdle / 2
		pool, err := pgxpool.NewWithConfig(context.Background(), config)
		if err == nil { // the same was accepted for the Driver's pool
			d.reserve.pool.Store(pool)
		}
	})
	return cmp.Or(d.reserve.pool.Load(), d.pool)
}

// keepReserve connects the reserve, unless it is connected, before it is needed: a server that has
// reached max_connections would refuse it then.
func (d *backend) keepReserve(ctx context.Context) error {
	conn, err := d.inReserve().Acquire(ctx)
	if err == nil {
		conn.Release()
	}
	return err
}

// reserveIdle is after how long without use the reserve's connection is closed. A Client that locks
// keeps it: see register.
const reserveIdle = time.Minute

// reserve has the connection for renewals and releases while the Driver's pool has none left.
type reserve struct {
	once sync.Once
	pool atomic.Pointer[pgxpool.Pool]
}

func (r *reserve) close() {
	r.once.Do(func() {}) // none is made from here on
	if pool := r.pool.Load(); pool != nil {
		pool.Close()
	}
}

// read makes a request that changes nothing again while all that is wrong with it is its
// connection, which the pool has had since before the server was restarted, or shut it.
func (d *backend) read(ctx context.Context, f func() error) error {
	for left := d.pool.Stat().TotalConns(); ; left-- {
		err := f()
		if err == nil || !broken(err) || left <= 0 || ctx.Err() != nil {
			return err
		}
	}
}

// broken reports whether a request failed only because of its connection: another may work.
func broken(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	return !refused && !errors.Is(err, pgx.ErrNoRows) && (!answered || isCode(err, "57P01"))
}

// later marks err as an outage if the server serves nobody for a while: it is starting or shutting
// down, or all connections are in use.
func later(err error) error {
	if isCode(err, "57P01", "57P02", "57P03", "53300") {
		return &noanswer.Later{Err: err}
	}
	return err
}

// exec runs a statement whose result does not matter.
func (d *backend) exec(ctx context.Context, sql string, args ...any) error {
	return d.query(ctx, d.pool, func(rows pgx.Rows) error {
		rows.Close()
		return rows.Err()
	}, sql, args)
}

// row runs a statement whose result is one row. Its Scan returns pgx.ErrNoRows if there is none.
func (d *backend) row(ctx context.Context, sql string, args ...any) row {
	return func(dest ...any) error {
		return d.query(ctx, d.pool, func(rows pgx.Rows) error {
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

// didNothing reports whether a statement has changed nothing for certain: it was not sent, has
// found no row, or was undone by the server. A server that shuts down may have a connection end
// after the statement's commit.
func didNothing(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrNoRows) || errors.Is(err, errNotSent) || pgconn.SafeToRetry(err)
}

// noTable reports whether a table or a function of the locks is missing.
func noTable(err error) bool { return isCode(err, "42P01", "42883") }

func isCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, e.Code)
}
