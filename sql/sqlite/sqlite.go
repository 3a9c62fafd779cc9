// Package sqlite is locker on SQLite: a lock is a row of a table in a file, for several processes
// of one machine. It registers sqlite://.
//
//	client, err := locker.Open(ctx, "sqlite:///var/lib/app/locks.db")
//
// The file is made when it is first needed, with the mode 0600; its folder must be there. With the parameter
// synchronous=normal SQLite does not wait until a grant is on disk: that is faster, but a power
// failure may lose the latest grants.
//
// Waiters stand in a queue in the file. A release wakes the next goroutine of the same Client at
// once. The first waiter of any other process looks at the file every 5 ms at first, and every 50
// ms later on.
//
// On Linux, holds end by a clock that counts from the start of the machine, and that nobody can
// set. On other systems they end by the wall clock. After a restart of the machine the clock begins
// anew. A hold from before that is gone when the new clock has passed its end. If that is more than
// a TTL away, the hold gets one more TTL from when somebody asks for it: no hold ends early.
//
// docs/backends/sqlite.md in the repository says what a deployment needs to know, and package
// internal/sqllock describes the protocol.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/sqllock"
)

func init() { driver.Register("sqlite", open) }

func open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	level, given := u.Take("synchronous")
	switch {
	case u.User != nil || len(u.Hosts) > 0 || len(u.Path) < 2:
		return nil, errors.New("sqlite:// takes the path of a file alone, as in sqlite:///var/lib/app/locks.db")
	case given && level != "full" && level != "normal":
		return nil, fmt.Errorf("parameter synchronous: %q is neither full, the default, nor normal", level)
	}
	if err := u.Unknown(); err != nil {
		return nil, err
	}
	d := dialect()
	d.Lax, d.Durable = "PRAGMA synchronous = NORMAL", "PRAGMA synchronous = FULL"
	if level == "normal" {
		d.Durable = d.Lax
	}
	path := fileName(u.Path)
	d.Check = func(context.Context, *sql.Conn) error {
		if secondLibrary() != "" && descriptors(path+"-shm") > 1 {
			return twoLibraries(path)
		}
		return nil
	}
	// One connection writes: goroutines of one process wait for it as long as their ctx lasts, and
	// do not compete in SQLite.
	writing, err := poolOf(u.Path, 1, "", true)
	if err != nil {
		return nil, err
	}
	reading, err := poolOf(u.Path, 2, level, false)
	if err != nil {
		return nil, err
	}
	d.Prepare = func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, d.Fill(schema))
		return err
	}
	return sqllock.New(d, sqllock.Pools{
		Ask: writing, Keep: writing, Read: reading,
		Close: func() error { return errors.Join(reading.Close(), writing.Close()) },
	}), nil
}

// New makes a Client over db, which the caller closes after the Client. See NewDriver.
func New(db *sql.DB, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(db)
	if err != nil {
		return nil, err
	}
	return adapter.Client(d, opts...)
}

// NewDriver makes a Driver over db, which stays the caller's: a pool of modernc.org/sqlite whose
// main database is a file. NewDriver changes no setting of SQLite: those of the pool count. The pool should have a
// busy_timeout, and the file should be in WAL mode. While the application has a transaction open
// that writes, no lock can be taken, renewed or released. So if transactions take longer than a
// fraction of the TTL, keep the locks in a file of their own.
func NewDriver(db *sql.DB) (driver.Driver, error) {
	if db == nil {
		return nil, adapter.Refuse(errors.New("nil *sql.DB"))
	}
	d := dialect()
	var known atomic.Bool              // that this library has the pool
	var of atomic.Pointer[os.FileInfo] // as it was at first
	d.Check = func(ctx context.Context, c *sql.Conn) error {
		if !known.Load() {
			_, err := c.ExecContext(ctx, "no statement")
			if _, ok := errors.AsType[*sqlite.Error](err); !ok && ctx.Err() == nil {
				return fmt.Errorf("the pool is not of modernc.org/sqlite, whose errors have to be told apart: open it with that library (%w)", err)
			}
			known.Store(true)
		}
		if secondLibrary() != "" {
			if path, _, err := fileOf(ctx, c); err == nil && descriptors(path+"-shm") > 1 {
				return twoLibraries(path)
			}
		}
		_, err := c.ExecContext(ctx, "PRAGMA temp.synchronous = FULL") // it changes nothing, but is refused inside a transaction
		return err
	}
	d.Prepare = func(ctx context.Context, c *sql.Conn) error {
		path, file, err := fileOf(ctx, c)
		if err != nil {
			return err
		}
		of.CompareAndSwap(nil, &file)
		if !os.SameFile(*of.Load(), file) {
			return fmt.Errorf("the file %s was replaced, and connections of the pool may have the old one open: make a new pool", path)
		}
		_, err = c.ExecContext(ctx, d.Fill(schema))
		return err
	}
	return sqllock.New(d, sqllock.Pools{Ask: db, Keep: db, Read: db, Close: func() error { return nil }}), nil
}

// fileOf returns the file of a connection's main database.
func fileOf(ctx context.Context, c *sql.Conn) (path string, file os.FileInfo, err error) {
	err = c.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path)
	if err == nil && path == "" {
		err = errors.New("the database is in memory, and not a file that others could share")
	}
	if err == nil {
		file, err = os.Stat(path)
	}
	return path, file, err
}

func dialect() sqllock.Dialect {
	return sqllock.Dialect{
		Locks: `"locker_locks"`, Waiters: `"locker_waiters"`,
		Greatest: "max", Ignore: "OR IGNORE",
		Primary: "1 = 1",
		Now:     "{now}", Wall: "{wall}", Clock: func() (int64, int64) { return now(), time.Now().UnixMicro() },
		NoTable: func(err error) bool {
			return errors.Is(err, errNoFile) || isCode(err, sqlite3.SQLITE_ERROR) && strings.Contains(err.Error(), "no such table")
		},
		Again: func(err error) bool { return isCode(err, sqlite3.SQLITE_BUSY) || isCode(err, sqlite3.SQLITE_LOCKED) },
		WrongServer: func(err error) bool {
			return isCode(err, sqlite3.SQLITE_ERROR) && strings.Contains(err.Error(), "inside a transaction")
		},
		Poll:     5 * time.Millisecond,
		Detached: true, // a file system may not answer
		Promises: driver.Guarantees{
			driver.Exclusive:      {Level: driver.LevelConditional, Condition: where},
			driver.Failover:       {Level: driver.LevelNo, Condition: "the file is on one machine"},
			driver.Fencing:        {Level: driver.LevelYes},
			driver.FencingDurable: {Level: driver.LevelConditional, Condition: "while the wall clock is not set back"},
			driver.Ordered:        {Level: driver.LevelConditional, Condition: "while every waiter can write to the file within 5 s, or its TTL if that is shorter"},
			driver.Woken:          {Level: driver.LevelNo, Condition: "waiters of other processes look at the file every 5 to 50 ms"},
		},
		Settings: settings,
	}
}

const where = "while " + sane + "all processes run on one kernel, without time namespaces, and nobody deletes or replaces the file"

// schema makes the tables. Tables of this name are for all versions of this package: whatever
// changes them gives them another.
const schema = `CREATE TABLE IF NOT EXISTS {locks} (
	lock_key BLOB PRIMARY KEY, -- SHA-256 of name
	name     BLOB NOT NULL,    -- as it may be no text
	token    INTEGER NOT NULL, -- of the last grant
	owner    BLOB NOT NULL,    -- who was granted it: random bytes
	metadata BLOB NOT NULL,
	ttl      INTEGER NOT NULL, -- microseconds
	until    INTEGER NOT NULL, -- microseconds, by the clock of now
	released INTEGER NOT NULL  -- 0: not, -1: by force
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS {waiters} (
	lock_key BLOB NOT NULL,
	ticket   INTEGER NOT NULL, -- when it came
	owner    BLOB NOT NULL,
	metadata BLOB NOT NULL,
	until    INTEGER NOT NULL, -- it counts
	PRIMARY KEY (lock_key, ticket, owner)
) WITHOUT ROWID;
`

// settings looks at what lets a promise be broken.
func settings(ctx context.Context, c *sql.Conn) (warnings []string, err error) {
	path, file, err := fileOf(ctx, c)
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && file.Mode().Perm()&0o004 != 0 {
		warnings = append(warnings, "every user of the machine may read the file, and can stop all who use it by locks on it and on the files beside it: take the right from others")
	}
	var level int
	if err := c.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level); err != nil {
		return nil, err
	}
	if level < 2 {
		warnings = append(warnings, "synchronous is not FULL: when the machine loses its power, a hold may be free before its TTL has passed; set it to FULL")
	}
	if kind := shared(path); kind != "" {
		warnings = append(warnings, "the file is on "+kind+", where locks of files do not reach processes of other machines, or do not work: put it on a local disk")
	}
	return warnings, nil
}

func isCode(err error, code int) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == code
}
