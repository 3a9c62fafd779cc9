package postgres

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
)

// Which errors allow a retry, and on which connections requests are sent.
//
//	the server rolled it back: conflict, deadlock, a locked row    retry after a pause, 100 times at most
//	the server takes no writes (25006), or is a standby (0A000)    close the connection, retry on another
//	a prepared statement is unknown (26000, 42P05): a pooler       prepare nothing from here on, retry
//	no connection could be used, nothing was sent                  retry on another
//	no answer in time                                              close idle connections: they may be dead, too
//	the connection broke after an idempotent request was sent      retry on another
//	the connection broke after any other request was sent          unknown: the caller decides
//
// Two pools. The Driver's pool is the application's, which may use all of it for long. Renewals,
// releases and beats then take the reserve: one connection with the same settings, made before the
// first grant, when the server still accepts one.

// query sends a statement in a round trip of its own, on a connection of the pool: it waits for no
// other, and none waits for it.
func (d *backend) query(
	ctx context.Context, pool func() *pgxpool.Pool, s statement, args ...[]byte,
) (values [][]byte, err error) {
	return newPipeline(d, pool).do(ctx, s, args...)
}

// again reports whether a failed request changed nothing, or may be made twice, and an immediate
// retry may succeed. All connections of a pool may be from before the server was restarted, or
// demoted.
func (d *backend) again(ctx context.Context, s statement, err error, tries int) bool {
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
	if isCode(err, "40001", "40P01", "23505", rowLocked) {
		pause := time.Duration(min(tries, 50)) * time.Millisecond
		return tries <= mostRetries && clock.Sleep(ctx, pause/2+mrand.N(pause)) == nil
	}
	another := wrongServer(err) || broken(err) && (s.idempotent || errors.Is(err, errNotSent))
	return another && tries <= int(d.pool.Stat().MaxConns())
}

const (
	rowLocked   = "55P03" // by another transaction, for longer than a function waits
	mostRetries = 100     // of a request that conflicts with other transactions
)

// wrongServer reports whether a server takes no writes: what was the primary before a failover, or
// a standby, which refuses unlogged tables even to readers.
func wrongServer(err error) bool { return isCode(err, "25006", "0A000") }

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
	d.inReserve().Reset()
}

// shared returns the Driver's pool.
func (d *backend) shared() *pgxpool.Pool { return d.pool }

// spare returns the pool for renewals and releases, which must not wait until the application, or
// many Locks, give back a connection: the Driver's pool, or the reserve if all of the pool's are in
// use.
func (d *backend) spare() *pgxpool.Pool {
	if s := d.pool.Stat(); s.AcquiredConns() < s.MaxConns() {
		return d.pool
	}
	return d.inReserve()
}

// makeReserve makes the reserve: a pool of one connection.
func (d *backend) makeReserve() *pgxpool.Pool {
	config := d.pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	config.MaxConnIdleTime = reserveIdle
	config.HealthCheckPeriod = reserveIdle / 2
	pool, _ := pgxpool.NewWithConfig(context.Background(), config) // the same was accepted for the Driver's pool
	return pool
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

// broken reports whether a request failed only because of its connection: another may work.
func broken(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	return !refused && (!answered || isCode(err, "57P01"))
}

// later marks err as an outage if the server serves nobody for a while: it is starting or shutting
// down, or all connections are in use.
func later(err error) error {
	if isCode(err, "57P01", "57P02", "57P03", "53300") {
		return &noanswer.Later{Err: err}
	}
	return err
}

// didNothing reports whether a statement has changed nothing for certain: it was not sent, or was
// undone by the server. A server that shuts down may have a connection end
// after the statement's commit.
func didNothing(err error) bool {
	return answeredBy(err) || errors.Is(err, errNotSent) || pgconn.SafeToRetry(err)
}

// noTable reports whether a table or a function of the locks is missing.
func noTable(err error) bool { return isCode(err, "42P01", "42883") }

func isCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, e.Code)
}
