// Package golangmigrate lets one of many programs run the migrations of
// github.com/golang-migrate/migrate/v4, under a lock of any backend in place of the database's own.
//
// Migrate's interface for databases has no context, and cannot tell that a lock was lost. A
// statement that is running goes on after a loss. A holder that was paused past its TTL hears of
// the loss at its next step, by the clock. With [New], a holder that is paused right before a step,
// after it has looked at the clock, still makes the step. With [NewFenced], for PostgreSQL and
// SQLite, the database refuses that step: the fencing token is checked in the transaction of the
// migration, and in that of the version.
//
//	inner, err := pgx.WithInstance(db, &pgx.Config{})
//	d, err := golangmigrate.NewFenced(client.Mutex("migrate"), inner, 0, sqlfence.Postgres, "schema_migrations")
//	m, err := migrate.NewWithInstance("iofs", source, "pgx5", d)
//	err = m.Up()
//
// # What holds
//
// Every program that migrates the database has to use a driver of this package, with the same name
// of the lock, and the same backend. With [NewFenced], a step of an earlier holder is either
// complete before a later holder begins, or undone. Exceptions:
//
//   - A migration with a COMMIT of its own: what follows the COMMIT is not checked.
//   - A migration that cannot run in a transaction, as CREATE INDEX CONCURRENTLY. Its first line
//     has to be [NoTransaction]. The token is checked right before it, and it may run twice.
//   - The settings x-multi-statement and x-no-tx-wrap of the drivers, which are not to be used.
//   - Drop, which checks by the clock alone.
//
// A holder that loses the lock within a migration finishes that migration with [NewFenced], and
// begins no other. A program that begins meanwhile gets [migrate.ErrDirty]. With [New] the database
// stays dirty. A program that ends in the midst of a migration leaves it dirty, too, as it does
// without this package: migrate refuses to go on until somebody has called Force.
//
// The database keeps the newest token in the table fencing_tokens, which Lock creates. If the
// lock's backend loses its data, tokens of etcd and ZooKeeper begin anew, and the database refuses
// them until [locker.WithTokenBase] makes them larger.
//
// If Unlock has returned an error, such as [locker.ErrLost], the Migrate still behaves as if it
// were locked: make a new one.
//
// # Through PgBouncer
//
// In transaction mode PgBouncer runs each statement on any of its connections. The advisory lock of
// migrate's drivers belongs to a connection. So through PgBouncer it excludes nobody, or stays for
// ever. The locks of this package use no connection of the database. But migrate's drivers take
// their advisory lock once, when they are made, to create their table. Make them within a
// transaction, which keeps one connection, as the example OpenThroughPgBouncer does.
package golangmigrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
)

// driver is a driver of migrate whose Lock and Unlock are those of a [locker.Mutex].
type driver struct {
	wait  time.Duration // of Lock
	inner database.Driver
	mutex *locker.Mutex
	fence *fencer // or nil

	mu    sync.Mutex
	hold  *locker.Hold // or nil
	dirty *int         // the version that Lock has found dirty, or nil
	begun bool         // a migration is recorded to have begun: the fence decides whether it ends
}

// New returns a driver over inner, which is any driver of migrate, without a fence. Its Lock and
// Unlock are those of m. Each of its other methods but Version and Close returns an error that
// matches [locker.ErrLost] once the hold is lost. Unlock returns such an error, too. Close unlocks
// what is locked, and closes inner. To use the driver by URL, register it in migrate under a new
// name.
//
// wait is how long Lock waits; if that passes, the error matches [context.DeadlineExceeded]. It has
// to be below the LockTimeout of migrate.Migrate. If a Lock takes longer than that, Migrate gives
// up, and never calls Unlock for it. If wait is 0, it is a second less than migrate's default.
func New(m *locker.Mutex, inner database.Driver, wait time.Duration) database.Driver {
	return &driver{wait: cmp.Or(wait, migrate.DefaultLockTimeout-time.Second), inner: inner, mutex: m}
}

// NewFenced returns a driver as [New] does, with a fence: a migration that has begun is finished
// although the hold is lost, if nobody else has changed anything. Lock also waits for a transaction
// of an earlier holder. inner is a driver of migrate for PostgreSQL (postgres, pgx, pgx5) or SQLite
// (sqlite, sqlite3). table is the one in which inner keeps the version, as it is written in SQL;
// migrate's default is schema_migrations.
func NewFenced(m *locker.Mutex, inner database.Driver, wait time.Duration, dialect sqlfence.Dialect, table string) (database.Driver, error) {
	f, err := newFencer(dialect, table)
	if err != nil {
		return nil, err
	}
	d := New(m, inner, wait).(*driver)
	d.fence = f
	return d, nil
}

// Open returns a driver over what the inner driver opens, with the same Mutex.
func (d *driver) Open(url string) (database.Driver, error) {
	inner, err := d.inner.Open(url)
	if err != nil {
		return nil, err
	}
	return &driver{wait: d.wait, inner: inner, mutex: d.mutex, fence: d.fence}, nil
}

func (d *driver) Close() error {
	err := d.Unlock()
	if errors.Is(err, database.ErrNotLocked) {
		err = nil
	}
	return errors.Join(err, d.inner.Close())
}

func (d *driver) Lock() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hold != nil {
		return database.ErrLocked
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.wait)
	defer cancel()
	hold, err := d.mutex.Acquire(ctx)
	if err != nil {
		return err
	}
	dirty, err := d.fence.begin(d.inner, hold.Token())
	if err == nil {
		err = ctx.Err() // nobody waits for this Lock any more
	}
	if err != nil {
		return errors.Join(err, hold.Unlock(context.Background()))
	}
	d.hold, d.dirty, d.begun = hold, dirty, false
	return nil
}

func (d *driver) Unlock() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hold == nil {
		return database.ErrNotLocked
	}
	hold := d.hold
	d.hold, d.dirty = nil, nil
	return hold.Unlock(context.Background())
}

// Run runs a migration, unless the hold is over. With a fence, the database decides that alone once
// SetVersion has recorded that the migration begins.
func (d *driver) Run(migration io.Reader) error {
	token, err := d.token("run a migration", true)
	if err != nil {
		return err
	}
	return d.fence.run(d.inner, token, migration)
}

// SetVersion records a version, unless the hold is over. With a fence, the database decides alone
// whether a migration that has begun is recorded to have ended: a hold that was lost meanwhile must
// not leave the database dirty.
func (d *driver) SetVersion(version int, dirty bool) error {
	token, err := d.token(fmt.Sprintf("set version %d", version), !dirty)
	if err != nil {
		return err
	}
	if err := d.fence.setVersion(d.inner, token, version, dirty); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty, d.begun = nil, dirty && d.fence != nil
	return nil
}

// Version returns what the inner driver does, or the version that Lock has found dirty. Migrate
// calls it with the lock and without it.
func (d *driver) Version() (version int, dirty bool, err error) {
	d.mu.Lock()
	found := d.dirty
	d.mu.Unlock()
	if found != nil {
		return *found, true, nil
	}
	return d.inner.Version()
}

// Drop deletes everything in the database, unless the hold is over.
func (d *driver) Drop() error {
	if _, err := d.token("drop", false); err != nil {
		return err
	}
	return d.inner.Drop()
}

// token returns the token of the hold, or an error if it is over or there is none. That it is over
// does not stop a step that ends what has begun.
func (d *driver) token(what string, ends bool) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hold == nil {
		return 0, fmt.Errorf("golangmigrate: %s: %w", what, locker.ErrNotHeld)
	}
	if err := d.hold.Err(); err != nil && !(ends && d.begun) {
		return 0, fmt.Errorf("golangmigrate: %s under %q: %w", what, d.mutex.Name(), err)
	}
	return d.hold.Token(), nil
}

// NoTransaction is the first line of a migration that cannot run in a transaction.
const NoTransaction = "-- locker: no transaction"

// fencer checks tokens in SQL alone, which the inner driver runs: a Driver of migrate has no
// connection to give. Its methods may be called on nil: then nothing is checked.
type fencer struct {
	create string
	table  string // in which inner keeps the version
}

func newFencer(dialect sqlfence.Dialect, table string) (*fencer, error) {
	switch {
	case table == "":
		return nil, errors.New("golangmigrate: the table of versions has no name: migrate's default is schema_migrations")
	case dialect != sqlfence.Postgres && dialect != sqlfence.SQLite:
		return nil, fmt.Errorf("golangmigrate: no fence for the dialect %q: want Postgres or SQLite, whose transactions undo any migration", dialect)
	}
	create, err := sqlfence.Table{Dialect: dialect}.DDL()
	return &fencer{create, table}, err
}

// check returns statements that fail if the database has seen a larger token than token. Until
// their transaction ends, they keep others from checking. They are one line, so that the lines that
// errors name stay those of the migration.
func (f *fencer) check(token uint64) string {
	resource := "'" + strings.ReplaceAll(f.table, "'", "''") + "'"
	return fmt.Sprintf("INSERT INTO fencing_tokens (resource, token) VALUES (%[1]s, 0) ON CONFLICT (resource) DO NOTHING; "+
		"UPDATE fencing_tokens SET token = CASE WHEN token <= %[2]d THEN %[2]d END WHERE resource = %[1]s; ", resource, token) // NULL is refused
}

// begin has the database refuse the tokens of earlier holders, before migrate reads the version. If
// that is dirty, begin returns it, and refuses nobody: migrate will go no further, and an earlier
// holder may be about to finish its migration.
func (f *fencer) begin(inner database.Driver, token uint64) (dirty *int, err error) {
	if f == nil {
		return nil, nil
	}
	if err := inner.Run(strings.NewReader(f.create)); err != nil {
		return nil, fmt.Errorf("golangmigrate: create the table fencing_tokens: %w", err)
	}
	version, isDirty, err := inner.Version()
	switch {
	case err != nil:
		return nil, fmt.Errorf("golangmigrate: begin: %w", err)
	case isDirty:
		return &version, nil
	}
	return nil, f.refused("begin", token, inner.Run(strings.NewReader(f.check(token))))
}

// run runs a migration in one transaction with the check: several statements in one request are one
// in PostgreSQL, and the driver for SQLite makes one of them.
func (f *fencer) run(inner database.Driver, token uint64, migration io.Reader) error {
	if f == nil {
		return inner.Run(migration)
	}
	text, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	if first, _, _ := strings.Cut(string(text), "\n"); strings.TrimSpace(first) != NoTransaction {
		return f.refused("run a migration", token, inner.Run(strings.NewReader(f.check(token)+string(text))))
	}
	if err := f.refused("run a migration", token, inner.Run(strings.NewReader(f.check(token)))); err != nil {
		return err
	}
	return inner.Run(strings.NewReader(string(text)))
}

// setVersion does what the drivers for PostgreSQL and SQLite do, in one transaction with the check.
func (f *fencer) setVersion(inner database.Driver, token uint64, version int, dirty bool) error {
	if f == nil {
		return inner.SetVersion(version, dirty)
	}
	set := "DELETE FROM " + f.table + ";"
	if version >= 0 || dirty { // also of a first migration that fails on its way down
		set += fmt.Sprintf(" INSERT INTO %s (version, dirty) VALUES (%d, %t);", f.table, version, dirty)
	}
	return f.refused(fmt.Sprintf("set version %d", version), token, inner.Run(strings.NewReader(f.check(token)+set)))
}

// refused makes err match fence.ErrStale if the check has failed: the only NULL that the database
// can refuse in the table of tokens is the check's.
func (f *fencer) refused(what string, token uint64, err error) error {
	if err == nil {
		return nil
	}
	cause := err // of which the message has the statement, too
	if e := new(database.Error); errors.As(err, e) || errors.As(err, &e) {
		cause = e.OrigErr
	}
	text := strings.ToLower(cause.Error())
	if strings.Contains(text, "fencing_tokens") && strings.Contains(text, "null") {
		err = &fence.StaleError{Resource: f.table, Token: token}
	}
	return fmt.Errorf("golangmigrate: %s: %w", what, err)
}
