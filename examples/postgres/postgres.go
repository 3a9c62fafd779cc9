// Package postgres is locker on PostgreSQL: a lock is a row of a table.
//
// Importing it makes postgres:// and postgresql:// known to locker.Open. Host, user and database are as pgx has them, and
// so are the parameters sslmode, sslrootcert, sslcert, sslkey, sslpassword, connect_timeout, application_name and
// pool_max_conns. The parameter table is that of NewDriver.
//
// It is an example of a driver that is not part of the library, written against its documentation alone:
// docs/writing-a-driver.md goes through it.
package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

const defaultTable = "locker_locks"

// New makes a Client on a pool of the caller's, who closes it after the Client.
func New(pool *pgxpool.Pool, opts ...locker.Option) (*locker.Client, error) {
	return locker.New(NewDriver(pool, ""), opts...)
}

// NewDriver makes a Driver on a pool of the caller's. The locks are in table, which may have a schema before a dot; ""
// is locker_locks. The pool's transactions have to be READ COMMITTED, which is PostgreSQL's default.
func NewDriver(pool *pgxpool.Pool, table string) *Driver {
	if table == "" {
		table = defaultTable
	}
	return &Driver{pool: pool, sql: statementsFor(table), close: func() {}}
}

// Driver implements driver.Driver, driver.BatchExtender, driver.Inspector and driver.TTLChecker.
type Driver struct {
	pool  *pgxpool.Pool
	sql   statements
	close func()
}

// Close closes the pool, if open made it.
func (d *Driver) Close() error {
	d.close()
	return nil
}

// Guarantees returns what one PostgreSQL promises.
func (d *Driver) Guarantees() driver.Guarantees {
	const clock = "while the server's clock is sane"
	return driver.Guarantees{
		driver.Exclusive:      {Level: driver.LevelConditional, Condition: clock},
		driver.Failover:       {Condition: "replication is asynchronous unless configured otherwise, and a failover can lose the lock"},
		driver.Fencing:        {Level: driver.LevelYes},
		driver.FencingDurable: {Level: driver.LevelConditional, Condition: "while the server's clock is not set back"},
	}
}

// CheckTTL refuses parts of a microsecond, which timestamps have not.
func (d *Driver) CheckTTL(ttl time.Duration) error {
	if ttl%time.Microsecond != 0 {
		return fmt.Errorf("%w: a TTL of %v: PostgreSQL counts whole microseconds", driver.ErrUnsupported, ttl)
	}
	return nil
}

// Acquire looks first, and takes then what it has seen to be free: who polls a held lock writes nothing.
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	began := time.Now() // from here on the core counts, too
	seen, err := d.look(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	l := &lease{driver: d, key: key(req.Name), owner: make([]byte, 16), seen: seen}
	_, _ = rand.Read(l.owner) // never fails
	return d.take(ctx, l, req, began)
}

func (d *Driver) take(ctx context.Context, l *lease, req driver.Request, began time.Time) (driver.Lease, error) {
	err := d.pool.QueryRow(ctx, d.sql.take, l.key, l.seen, l.owner, req.TTL.Microseconds(), []byte(req.Metadata)).Scan(&l.token)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, driver.ErrHeld // another was faster
	case pgconn.SafeToRetry(err):
		return nil, err // nothing was sent
	}
	l.lasts(began, req.TTL)
	return l, err // a lease beside an error: the lock may have been taken
}

// look returns the last token of the lock, or ErrHeld. It makes the row, and the table, where they are missing.
func (d *Driver) look(ctx context.Context, name string) (token int64, err error) {
	for range 3 { // look, make, look; between them somebody may delete
		var isFree bool
		err = d.pool.QueryRow(ctx, d.sql.look, key(name)).Scan(&token, &isFree)
		switch {
		case err == nil && !isFree:
			return 0, driver.ErrHeld
		case err == nil:
			return token, nil
		case noTable(err):
			err = d.makeTable(ctx)
		case errors.Is(err, pgx.ErrNoRows):
			_, err = d.pool.Exec(ctx, d.sql.insert, key(name), []byte(name))
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("the row of lock %q is deleted as soon as it is made", name)
}

// makeTable takes it for done if somebody else makes the table now, which IF NOT EXISTS does not see.
func (d *Driver) makeTable(ctx context.Context) error {
	_, err := d.pool.Exec(ctx, d.sql.schema)
	if isCode(err, "23505", "42710", "42P07") {
		return nil
	}
	return err
}

func noTable(err error) bool { return isCode(err, "42P01") }

func isCode(err error, codes ...string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

func key(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return sum[:]
}
