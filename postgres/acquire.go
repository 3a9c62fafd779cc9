package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/driver"
)

// Acquire takes what it has seen to be free. What it sees first is an answer to a take that cannot succeed, unless it remembers what this
// Driver's last release has left.
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	l := d.newLease(req.Name)
	began := time.Now() // from here on the core counts, too
	l.seen = d.seen.recall(l.key).version
	for range 4 { // make the table, the row; see; take
		a, err := d.take(ctx, l, req, began)
		switch {
		case err == nil && a.granted:
			return l, nil
		case err == nil && !a.free:
			return nil, heldBy(a.owner, a.metadata)
		case err == nil && a.waited:
			return nil, driver.ErrHeld // who waits comes first
		case err == nil:
			l.seen = a.version
			continue
		case l.known:
			return l, err // the lock may have been taken
		}
		if l.seen, err = d.makeMissing(ctx, l.key, req.Name, err); err != nil {
			return nil, err
		}
	}
	return nil, driver.ErrHeld // others are faster
}

func (d *Driver) newLease(name string) *lease {
	l := &lease{driver: d, key: key(name), owner: make([]byte, driverID+16)}
	_, _ = rand.Read(l.owner[copy(l.owner, d.listener.id()):]) // never fails
	return l
}

// seen is the answer to a take.
type seen struct {
	granted, free, waited bool
	version               int64
	owner, metadata       []byte
}

// take sets doubtful if its outcome is not known.
func (d *Driver) take(ctx context.Context, l *lease, req driver.Request, began time.Time) (a seen, err error) {
	var token int64
	err = d.row(ctx, d.sql.take, l.key, l.seen, l.owner, req.TTL.Microseconds(), []byte(req.Metadata)).
		Scan(&token, &a.version, &a.free, &a.waited, &a.owner, &a.metadata)
	switch {
	case err != nil && !didNothing(err):
		l.known, l.doubtful = true, true
		l.lasts(began, req.TTL)
	case err == nil && token > 0:
		a.granted, l.token = true, token
		l.lasts(began, req.TTL)
		d.sweepIfDue()
	}
	return a, err
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
	switch {
	case isCode(err, "23505", "42710", "42P07"):
		return nil
	case isCode(err, "42501"):
		return fmt.Errorf("the table of the locks is missing, and this user may not make it: make it once with postgres.Schema, or name one in another schema, as table=jobs.locks: %w", err)
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
