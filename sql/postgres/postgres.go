// Package postgres is locker on PostgreSQL: a lock is a row of a table.
//
// Importing it makes postgres:// and postgresql:// known to locker.Open. pgx interprets the host,
// user and database of the URL, and the parameters sslmode, sslrootcert, sslcert, sslkey,
// sslpassword, connect_timeout, application_name, pool_max_conns and default_query_exec_mode. The
// URL parameter table means the same as the argument table of [NewDriver].
//
// Waiters stand in a queue, and a release hands the lock over to the first of them. For that, a
// Driver with waiters listens on one connection beside the pool. A request takes a connection of
// the pool only while it runs; holds and waiters take none. The connections may go through a pooler
// such as PgBouncer, also in transaction mode. In transaction mode a Driver cannot listen, and asks
// every 100 to 200 ms for all its waiters.
//
// docs/backends/postgres.md in the repository says what a deployment needs to know.
package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/sqllock"
)

const defaultTable = "locker_locks"

// New makes a Client over pool, which the caller closes after the Client.
func New(pool *pgxpool.Pool, opts ...locker.Option) (*locker.Client, error) {
	return locker.New(NewDriver(pool, ""), opts...)
}

// NewDriver makes a Driver over pool, which stays the caller's. The locks are in table, which may
// have a schema before a dot (default: public); "" is locker_locks.
func NewDriver(pool *pgxpool.Pool, table string) driver.Driver { return newDriver(pool, table) }

func newDriver(pool *pgxpool.Pool, table string) *backend {
	if table == "" {
		table = defaultTable
	}
	d := &backend{pool: pool, table: table, sql: statementsFor(table), close: func() {}, idle: sqllock.Idle}
	d.eras.asking = make(chan struct{}, 1)
	d.asks, d.gives = newPipeline(d, d.shared), newPipeline(d, d.spare)
	d.waiting, d.inReserve = newWaiting(d), sync.OnceValue(d.makeReserve)
	d.listener = &listener{driver: d, channel: channelOf(d.waiting.id)}
	switch pool.Config().ConnConfig.DefaultQueryExecMode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeDescribeExec:
		d.unnamed.Store(true)
	}
	d.sweeper = sqllock.NewSweeper(sweepRows)
	return d
}

// backend is the Driver.
type backend struct {
	sqllock.Microseconds

	pool     *pgxpool.Pool
	table    string
	sql      statements
	close    func()
	asks     *pipeline
	gives    *pipeline // of renewals and releases
	waiting  *waiting
	listener *listener
	unnamed  atomic.Bool // statements are not prepared
	strict   atomic.Bool // the sessions' isolation level is another than READ COMMITTED
	noTurn   atomic.Bool // turn_v1 is missing, and may not be made

	// inReserve returns the connection for renewals and releases while the pool has none left.
	inReserve func() *pgxpool.Pool

	riders  sync.Map // *rider by key, as a string
	eras    eras
	seen    sqllock.Recent[lastSeen] // what this Driver has seen last of a lock's row
	sweeper *sqllock.Sweeper
	idle    time.Duration // how long an unused row stays
}

// Close ends the connection that listens, and closes the pool if [locker.Open] made it.
func (d *backend) Close() error {
	d.exit()
	d.waiting.close()
	d.sweeper.Close()
	d.asks.end()
	d.gives.end()
	d.inReserve().Close()
	d.close()
	return nil
}

// Guarantees returns what one PostgreSQL promises.
func (d *backend) Guarantees() driver.Guarantees {
	const clock = "while the server's clock is sane"
	const failover = clock + ", and nobody reaches a primary that was replaced. A server that takes over must know the TTLs in use, and the holds that were ended by force; a standby normally receives both within milliseconds. A server that takes over must not be started from copied files of a server that was shut down"
	return driver.Guarantees{
		driver.Exclusive:      {Level: driver.LevelConditional, Condition: clock},
		driver.Failover:       {Level: driver.LevelConditional, Condition: failover},
		driver.Fencing:        {Level: driver.LevelYes},
		driver.FencingDurable: {Level: driver.LevelConditional, Condition: "while no clock is set back by more than the longest TTL in use, and the clock of a server that takes over is behind by at most that much"},
		driver.Ordered:        {Level: driver.LevelConditional, Condition: "while no server crashes, and no waiter is cut off for more than 5 s (or its TTL if that is shorter)"},
		driver.Woken:          {Level: driver.LevelConditional, Condition: "if clients can LISTEN. Through a pooler they cannot, and waiters poll"},
	}
}

var _ interface {
	driver.Driver
	driver.BatchExtender
	driver.Operator
	driver.Warner
	driver.TTLChecker
} = (*backend)(nil)

// parameters are those of pgx that a URL of ours may have, too.
var parameters = []string{
	"host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "connect_timeout", "application_name", "pool_max_conns",
	"default_query_exec_mode",
}

const connectTimeout = "5" // seconds

func init() {
	driver.Register("postgres", open)
	driver.Register("postgresql", open)
}

// open makes a pool of its own, which connects when it is first used.
func open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	table, ok := u.Take("table")
	if ok && table == "" {
		return nil, errors.New("parameter table is empty")
	}
	config, err := poolConfig(u)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	d := newDriver(pool, table)
	d.close = pool.Close
	return d, nil
}

func poolConfig(u *driver.URL) (*pgxpool.Config, error) {
	query := url.Values{}
	for _, p := range parameters {
		if value, ok := u.Take(p); ok {
			query.Set(p, value)
		}
	}
	if err := u.Unknown(); err != nil { // before the pool starts its goroutines
		return nil, err
	}
	if query.Has("host") && len(u.Hosts) > 0 {
		return nil, errors.New("the URL has a host and the parameter host, which is for the folder of a Unix socket, as in postgres:///app?host=/run/postgresql")
	}
	if !query.Has("connect_timeout") { // of each host: one that hangs must not use up the time of the others
		query.Set("connect_timeout", connectTimeout)
	}
	if len(u.Hosts) > 1 { // it costs a round trip for each connection
		query.Set("target_session_attrs", "read-write")
	}
	whole := url.URL{Scheme: "postgres", User: u.User, Host: strings.Join(u.Hosts, ","), Path: u.Path, RawQuery: query.Encode()}
	config, err := pgxpool.ParseConfig(whole.String())
	if err != nil { // whose text has the URL in it, and may have a password
		return nil, fmt.Errorf("pgx does not accept %v: see its parameters %s", u, strings.Join(parameters, ", "))
	}
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		// pgx reads TLS files when it parses, and they may have been replaced since.
		if now, err := pgxpool.ParseConfig(whole.String()); err == nil {
			c.TLSConfig, c.Fallbacks = now.ConnConfig.TLSConfig, now.ConnConfig.Fallbacks
		}
		return nil
	}
	return config, nil
}

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
	return sqldriver.RowsAffected(tag.RowsAffected()), err
}
