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
// such as PgBouncer, also in transaction mode. In transaction mode a Driver cannot listen, and the
// first waiter looks every 100 to 200 ms.
//
// docs/backends/postgres.md in the repository says what a deployment needs to know.
package postgres

import (
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
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
	d := &backend{pool: pool, table: table, sql: statementsFor(table), close: func() {}, idle: time.Hour}
	d.eras.asking = make(chan struct{}, 1)
	d.asks, d.gives = newPipeline(d, func() *pgxpool.Pool { return d.pool }), newPipeline(d, d.spare)
	d.waiting = newWaiting(d)
	d.listener = newListener(d)
	switch pool.Config().ConnConfig.DefaultQueryExecMode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeDescribeExec:
		d.unnamed.Store(true)
	}
	d.sweeper.begin()
	return d
}

// backend is the Driver.
type backend struct {
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
	reserve  reserve

	eras     eras
	versions versions
	sweeper  sweeper
	idle     time.Duration // how long a row of a free lock stays
}

// Close ends the connection that listens, and closes the pool if [locker.Open] made it.
func (d *backend) Close() error {
	d.exit()
	d.waiting.close()
	d.listener.close()
	d.sweeper.close()
	d.asks.end()
	d.gives.end()
	d.reserve.close()
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

// CheckTTL refuses a TTL that is not in whole microseconds, because timestamps count those.
func (d *backend) CheckTTL(ttl time.Duration) error {
	if ttl%time.Microsecond != 0 {
		return fmt.Errorf("%w: a TTL of %v: PostgreSQL counts whole microseconds", driver.ErrUnsupported, ttl)
	}
	return nil
}

// DefaultTTL leaves the default to the core.
func (d *backend) DefaultTTL() time.Duration { return 0 }

func key(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return sum[:]
}

var _ interface {
	driver.Driver
	driver.BatchExtender
	driver.Operator
	driver.Warner
	driver.TTLChecker
} = (*backend)(nil)
