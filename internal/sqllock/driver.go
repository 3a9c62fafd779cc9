package sqllock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
)

// Dialect is what tells one database from another.
type Dialect struct {
	Locks, Waiters string // the tables, quoted

	// SQL that differs. Token is a function whose argument becomes the statement's LastInsertId; ""
	// for a database that has RETURNING.
	Greatest, Ignore, Token string
	Primary                 string // whether this server takes writes
	Literals                bool   // arguments are written as hexadecimal digits and numbers, which no character set changes
	Now, Wall               string // microseconds, by the database; or
	Clock                   func() (now, wall int64)

	// Prepare makes missing tables. It is called before the first statement that writes, and again
	// after a statement whose error is NoTable.
	Prepare func(ctx context.Context, c *sql.Conn) error
	NoTable func(error) bool

	// Check, optional, changes no data. It fails on a connection that an earlier user has left in a
	// transaction: our writes there might never be committed.
	Check func(ctx context.Context, c *sql.Conn) error

	Again       func(error) bool // deadlock, conflict, busy: no effect; retried until ctx ends
	WrongServer func(error) bool // refused, like all that follow on this connection
	Later       func(error) bool // broken connection, or server not available yet; nil: never

	// Durable is run before a statement that must be on disk when it is answered, and Lax before
	// all others. Both may be empty.
	Durable, Lax string

	Poll     time.Duration // first poll interval of the first waiter; it grows to ten times this
	Detached bool          // the client library may not return when ctx ends

	Promises driver.Guarantees
	Settings func(ctx context.Context, c *sql.Conn) (warnings []string, err error)
}

// Pools are the connection pools by purpose. They may be one and the same.
type Pools struct {
	Ask  *sql.DB
	Keep *sql.DB // for renewals and releases, which must not wait for acquisitions
	Read *sql.DB
	Kept int // connections that Keep opens before a grant: later the server may accept no more

	// Silent, optional, closes the idle connections after a request that timed out on one: the
	// others may lead to the same unreachable server.
	Silent func()

	Close func() error
}

// Driver implements driver.Driver.
type Driver struct {
	Dialect
	Microseconds

	pools    Pools
	waiting  waiting
	known    Recent[int64] // last tokens of locks that this Driver released: a take skips the look
	sweeper  *Sweeper
	sweeping sync.Mutex

	ctx    context.Context // of background work
	cancel context.CancelFunc
	work   sync.WaitGroup
	ready  atomic.Bool // the tables are there
}

// New makes a Driver. It makes no request.
func New(dialect Dialect, pools Pools) *Driver {
	d := &Driver{Dialect: dialect, pools: pools, sweeper: NewSweeper(pageRows)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Claim implements driver.Driver.
func (d *Driver) Claim(req driver.Request) driver.Claim {
	c := &claim{Request: req, of: d, key: Key(req.Name), owner: make([]byte, 16)}
	_, _ = rand.Read(c.owner) // never fails
	return c
}

// Key returns the key of a name's row: names may be longer than an index allows.
func Key(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return sum[:]
}

// Guarantees implements driver.Driver.
func (d *Driver) Guarantees() driver.Guarantees { return d.Promises }

// CheckTTL refuses parts of a microsecond.
func (Microseconds) CheckTTL(ttl time.Duration) error {
	if ttl%time.Microsecond != 0 {
		return fmt.Errorf("%w: a TTL of %v: the table has whole microseconds", driver.ErrUnsupported, ttl)
	}
	return nil
}

// DefaultTTL leaves the default to the core.
func (Microseconds) DefaultTTL() time.Duration { return 0 }

// Microseconds is the driver.TTLChecker of a table that counts them.
type Microseconds struct{}

// Warnings implements driver.Warner.
func (d *Driver) Warnings(ctx context.Context) ([]string, error) {
	warnings, err := run(ctx, d, d.pools.Read, false, d.Settings)
	if err != nil && d.NoTable(err) {
		return nil, nil
	}
	return warnings, err
}

// Close ends background work, and closes the pools.
func (d *Driver) Close() error {
	d.sweeper.Close()
	d.cancel()
	d.work.Wait()
	return d.pools.Close()
}

const (
	mostTries = 10                    // each on another connection, while connections prove broken
	pause     = 10 * time.Millisecond // longest backoff after a conflict
	lateLimit = 10 * time.Second      // of a detached statement whose caller has returned
)

// run runs f on a connection of pool, and makes the tables first if f writes. It retries f after a
// transient error that left no effect, and returns the result of the last try alone, since a commit
// may fail after its statement has returned a row. If run returns an error, f may still be running,
// and its outcome is unknown. Errors that match Later are reported as an outage.
func run[T any](ctx context.Context, d *Driver, pool *sql.DB, writes bool, f func(context.Context, *sql.Conn) (T, error)) (T, error) {
	var none, last T
	var err error
	switch {
	case ctx.Err() != nil:
		return none, ctx.Err()
	case d.Detached:
		d.work.Add(1)
		err = driver.Detach(ctx, lateLimit, func(ctx context.Context) (err error) {
			defer d.work.Done()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(d.ctx, cancel)()
			last, err = try(ctx, d, pool, writes, f)
			return err
		})
	default:
		last, err = try(ctx, d, pool, writes, f)
	}
	switch {
	case err == nil:
		return last, nil
	case !errors.Is(err, sqldriver.ErrBadConn) && (d.Later == nil || !d.Later(err)):
		return none, err
	case ctx.Err() != nil:
		return none, ctx.Err() // which broke the connection, perhaps
	default:
		return none, &noanswer.Later{Err: err}
	}
}

func try[T any](ctx context.Context, d *Driver, pool *sql.DB, writes bool, f func(context.Context, *sql.Conn) (T, error)) (T, error) {
	for tries := 1; ; tries++ {
		once, cancel := d.limit(ctx)
		v, err := runOnce(once, d, pool, writes, f)
		silent := errors.Is(once.Err(), context.DeadlineExceeded)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return v, err
		case silent:
			return v, errSilent
		case d.Again(err):
			time.Sleep(mrand.N(pause))
		case tries == mostTries:
			return v, err
		case d.NoTable(err) && writes:
			d.ready.Store(false)
		case !errors.Is(err, sqldriver.ErrBadConn) && !d.WrongServer(err):
			return v, err
		}
	}
}

// errSilent: a try has timed out, though ctx has not ended.
var errSilent = noanswer.Error("the database has not answered in time")

// limit returns the context of one try: a quarter of the remaining time, or a second if that is
// more, to leave time for retries on other connections.
func (d *Driver) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	until, ok := ctx.Deadline()
	if !ok || d.pools.Silent == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, max(time.Until(until)/4, time.Second))
}

// runOnce runs f once. It closes the connection after an error, of f or of Check, that matches
// WrongServer: another connection may lead to a server that accepts the statement.
func runOnce[T any](ctx context.Context, d *Driver, pool *sql.DB, writes bool, f func(context.Context, *sql.Conn) (T, error)) (v T, err error) {
	c, err := pool.Conn(ctx)
	if err != nil {
		return v, err
	}
	defer func() { _ = c.Close() }()
	if d.Check != nil {
		err = d.Check(ctx, c)
	}
	if err == nil && writes && !d.ready.Load() {
		err = d.Prepare(ctx, c)
		d.ready.Store(err == nil)
	}
	if err == nil {
		v, err = f(ctx, c)
	}
	if err != nil && d.pools.Silent != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		d.pools.Silent()
	}
	if err != nil && d.WrongServer(err) {
		_ = c.Raw(func(any) error { return sqldriver.ErrBadConn })
	}
	return v, err
}

// connect opens the connections that Keep must have before a grant.
func (d *Driver) connect(ctx context.Context) error {
	if d.pools.Kept == 0 || d.pools.Keep.Stats().OpenConnections >= d.pools.Kept {
		return nil
	}
	_, err := run(ctx, d, d.pools.Keep, false, func(ctx context.Context, _ *sql.Conn) (none struct{}, err error) {
		var others []*sql.Conn
		for err == nil && d.pools.Keep.Stats().OpenConnections < d.pools.Kept {
			var c *sql.Conn
			if c, err = d.pools.Keep.Conn(ctx); err == nil {
				others = append(others, c)
			}
		}
		for _, c := range others {
			_ = c.Close()
		}
		return none, err
	})
	return err
}

// exec runs a statement, and returns how many rows it has changed. For take it returns the new
// token instead, or 0 if it has changed none.
func (d *Driver) exec(ctx context.Context, pool *sql.DB, before, statement string, args ...any) (int64, error) {
	return run(ctx, d, pool, true, func(ctx context.Context, c *sql.Conn) (n int64, err error) {
		if before != "" {
			if _, err := c.ExecContext(ctx, before); err != nil {
				return 0, err
			}
		}
		mints := statement == take
		statement, args := d.bind(statement, args)
		if mints && d.Token == "" {
			if err = c.QueryRowContext(ctx, statement, args...).Scan(&n); errors.Is(err, sql.ErrNoRows) {
				err = nil
			}
			return n, err
		}
		result, err := c.ExecContext(ctx, statement, args...)
		if err != nil {
			return 0, err
		}
		if n, err := result.RowsAffected(); !mints || n == 0 || err != nil {
			return n, err
		}
		return result.LastInsertId()
	})
}

// query returns the rows of a result; to returns the destinations of a row's columns. A missing
// table is an empty result.
func query[Row any](ctx context.Context, d *Driver, to func(*Row) []any, statement string, args ...any) ([]Row, error) {
	all, err := run(ctx, d, d.pools.Read, false, func(ctx context.Context, c *sql.Conn) (some []Row, err error) {
		statement, args := d.bind(statement, args)
		rows, err := c.QueryContext(ctx, statement, args...)
		if err != nil {
			return nil, err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var row Row
			if err := rows.Scan(to(&row)...); err != nil {
				return nil, err
			}
			some = append(some, row)
		}
		return some, rows.Err()
	})
	if err != nil && d.NoTable(err) {
		return nil, nil
	}
	return all, err
}

var _ interface {
	driver.Driver
	driver.BatchExtender
	driver.Operator
	driver.Warner
	driver.TTLChecker
} = (*Driver)(nil)
