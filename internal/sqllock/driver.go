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

	// Words of statements. Token is a function whose argument is the LastInsertId of the statement;
	// "" if there is RETURNING.
	Greatest, Ignore, Token string
	Primary                 string // whether this server takes writes
	Literals                bool   // arguments are written as hexadecimal digits and numbers, which no character set changes
	Now, Wall               string // microseconds, by the database; or
	Clock                   func() (now, wall int64)

	// Prepare makes the tables, if they are missing. It is called before the first statement that
	// writes, and again where NoTable is true of the error of one.
	Prepare func(ctx context.Context, c *sql.Conn) error
	NoTable func(error) bool

	// Check, optional, changes nothing, and fails on a connection on which others have been that has
	// to decide nothing: what is written in a transaction that they left need not be committed.
	Check func(ctx context.Context, c *sql.Conn) error

	Again       func(error) bool // the statement has done nothing because of others: it is tried again until ctx ends
	WrongServer func(error) bool // it was refused, as another on this connection would be
	Later       func(error) bool // the connection broke, or the server serves nobody for a while. nil: there is none

	// Durable is what a statement is preceded by that has to be on disk when it is answered, and
	// Lax what others are. They may be empty.
	Durable, Lax string

	Poll     time.Duration // after which the first who waits looks again, at first; it becomes ten times as long
	Detached bool          // the client library may not return when ctx ends

	Promises driver.Guarantees
	Settings func(ctx context.Context, c *sql.Conn) (warnings []string, err error)
}

// Pools are where connections come from. They may be one.
type Pools struct {
	Ask  *sql.DB
	Keep *sql.DB // for renewals and releases, which must not wait for those who ask
	Read *sql.DB
	Kept int // how many connections Keep has before a grant: a server may take no more of them later

	// Silent, optional, closes the connections that nobody uses: one was not answered on for part of
	// the time that a request has, and the others may lead to where nothing is answered, too.
	Silent func()

	Close func() error
}

// Driver implements driver.Driver.
type Driver struct {
	Dialect

	pools   Pools
	waiting waiting
	known   tokens
	sweeper sweeper

	ctx    context.Context // of what goes on in the background
	cancel context.CancelFunc
	work   sync.WaitGroup
	ready  atomic.Bool // the tables are there
}

// New makes a Driver. It makes no request.
func New(dialect Dialect, pools Pools) *Driver {
	d := &Driver{Dialect: dialect, pools: pools}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.sweeper.begin()
	return d
}

// Claim implements driver.Driver.
func (d *Driver) Claim(req driver.Request) driver.Claim {
	c := &claim{Request: req, of: d, key: key(req.Name), owner: make([]byte, 16)}
	_, _ = rand.Read(c.owner) // never fails
	return c
}

func key(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return sum[:]
}

// Guarantees implements driver.Driver.
func (d *Driver) Guarantees() driver.Guarantees { return d.Promises }

// CheckTTL refuses parts of a microsecond.
func (d *Driver) CheckTTL(ttl time.Duration) error {
	if ttl%time.Microsecond != 0 {
		return fmt.Errorf("%w: a TTL of %v: the table has whole microseconds", driver.ErrUnsupported, ttl)
	}
	return nil
}

// DefaultTTL leaves the default to the core.
func (d *Driver) DefaultTTL() time.Duration { return 0 }

// Warnings implements driver.Warner.
func (d *Driver) Warnings(ctx context.Context) ([]string, error) {
	warnings, err := run(ctx, d, d.pools.Read, false, d.Settings)
	if err != nil && d.NoTable(err) {
		return nil, nil
	}
	return warnings, err
}

// Close ends what goes on in the background.
func (d *Driver) Close() error {
	d.cancel()
	d.work.Wait()
	return d.pools.Close()
}

const (
	mostTries = 10                    // of connections that turn out to be useless
	pause     = 10 * time.Millisecond // at most, before a statement that others were in the way of is tried again
	lateLimit = 10 * time.Second      // for a statement whose caller has left
)

// run runs f on a connection of pool, before which the tables are there if it writes. It runs f
// again if that has done nothing for a reason that may pass, and returns what the last try has: a
// commit may fail after its statement has returned a row. If it returns an error, f may go on.
// What Later is true of is an outage then.
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

// errSilent is of a try that was not answered in time, though there is more.
var errSilent = noanswer.Error("the database has not answered in time")

// limit returns the context of one try: a quarter of what is left, or a second if that is more, so
// that there is time for others on other connections.
func (d *Driver) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	until, ok := ctx.Deadline()
	if !ok || d.pools.Silent == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, max(time.Until(until)/4, time.Second))
}

// runOnce closes a connection that leads to a server which refuses what another may do, or where
// WrongServer is true of the error of Check.
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

// connect has Keep have its connections.
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

// exec runs a statement, and returns how many rows it has changed.
func (d *Driver) exec(ctx context.Context, pool *sql.DB, before, statement string, args ...any) (int64, error) {
	return run(ctx, d, pool, true, func(ctx context.Context, c *sql.Conn) (int64, error) {
		if before != "" {
			if _, err := c.ExecContext(ctx, before); err != nil {
				return 0, err
			}
		}
		statement, args := d.bind(statement, args)
		result, err := c.ExecContext(ctx, statement, args...)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

// query returns the rows of a result, of which to returns where the columns go. Where there is no
// table there are none.
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
