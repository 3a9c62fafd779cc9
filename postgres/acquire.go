package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-locker/locker/driver"
)

// Acquire looks first, and takes then what it has seen to be free: who polls a held lock writes nothing. It need not look if it
// remembers what this Driver's last release left.
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	l := d.newLease(req.Name)
	began := time.Now() // from here on the core counts, too
	if seen, ok := d.seen.take(l.key); ok {
		l.seen = seen
		if got, err := d.take(ctx, l, req, began); !errors.Is(err, driver.ErrHeld) {
			return got, err
		}
	}
	var err error
	if l.seen, err = d.look(ctx, l.key, req.Name); err != nil {
		return nil, err
	}
	return d.take(ctx, l, req, began)
}

func (d *Driver) newLease(name string) *lease {
	l := &lease{driver: d, key: key(name), owner: make([]byte, driverID+16)}
	_, _ = rand.Read(l.owner[copy(l.owner, d.listener.id()):]) // never fails
	return l
}

func (d *Driver) take(ctx context.Context, l *lease, req driver.Request, began time.Time) (driver.Lease, error) {
	err := d.row(ctx, d.sql.take, l.key, l.seen, l.owner, req.TTL.Microseconds(), []byte(req.Metadata)).Scan(&l.token)
	switch {
	case errors.Is(err, pgx.ErrNoRows), noTable(err):
		return nil, driver.ErrHeld // another was faster
	case pgconn.SafeToRetry(err):
		return nil, err // nothing was sent
	}
	l.lasts(began, req.TTL)
	if err == nil {
		d.sweepIfDue()
	}
	return l, err // a lease beside an error: the lock may have been taken
}

// look returns the version of the lock, or ErrHeld. It makes the row, and the table, where they are missing.
func (d *Driver) look(ctx context.Context, key []byte, name string) (version int64, err error) {
	for range 3 { // make the table, the row; or somebody else has made it
		var isFree, isWaited bool
		var owner, metadata []byte
		err = d.row(ctx, d.sql.look, key).Scan(&version, &isFree, &isWaited, &owner, &metadata)
		switch {
		case err == nil && !isFree:
			return 0, heldBy(owner, metadata)
		case err == nil && isWaited:
			return 0, driver.ErrHeld // who waits comes first
		case err == nil:
			return version, nil
		}
		if version, err = d.makeMissing(ctx, key, name, err); err != nil || version > 0 {
			return version, err
		}
	}
	return 0, fmt.Errorf("the row of lock %q is deleted as soon as it is made", name)
}

// makeMissing makes the row, and returns its version, or makes the table, if that is what err is about. Else it returns err. The version is 0 if
// somebody else has made the row.
func (d *Driver) makeMissing(ctx context.Context, key []byte, name string, err error) (version int64, _ error) {
	switch {
	case noTable(err):
		return 0, d.makeTable(ctx)
	case errors.Is(err, pgx.ErrNoRows):
		d.sweeper.made.Add(1)
		err = d.row(ctx, d.sql.insert, key, []byte(name)).Scan(&version)
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
	}
	return version, err
}

// makeTable takes it for done if somebody else makes the table now, which IF NOT EXISTS does not see.
func (d *Driver) makeTable(ctx context.Context) error {
	err := d.exec(ctx, d.sql.schema)
	if isCode(err, "23505", "42710", "42P07") {
		return nil
	}
	return err
}

// heldBy tells who holds the lock.
func heldBy(owner, metadata []byte) error {
	return &driver.HeldError{Holder: participant(owner, metadata)}
}

func participant(owner, metadata []byte) driver.Participant {
	return driver.Participant{ID: hex.EncodeToString(owner), Metadata: string(metadata)}
}
