package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sqllock"
)

// Inspect implements driver.Operator.
func (d *backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	row, err := d.query(ctx, d.shared, d.sql.inspect, sqllock.Key(name))
	switch {
	case noTable(err), err == nil && len(row) == 0:
		return driver.State{}, nil
	case err != nil:
		return driver.State{}, err
	}
	s := driver.State{Held: asTruth(row[0]), Token: uint64(asNumber(row[1]))}
	if s.Held {
		s.Holder, s.Left = sqllock.Participant(row[2], row[3]), time.Duration(asNumber(row[4]))*time.Microsecond
		if age := asNumber(row[5]); age >= 0 { // a token is the time of its grant in µs, unless the clock has gone back since an earlier one
			s.Since = time.Now().Add(-time.Duration(age) * time.Microsecond)
		}
	}
	metadata := asArray(row[7])
	for i, w := range asArray(row[6]) {
		s.Waiters = append(s.Waiters, sqllock.Participant(w, metadata[i]))
	}
	return s, nil
}

// pageRows is how many rows a page of List looks at.
const pageRows = 1000

// List implements driver.Operator.
func (d *backend) List(prefix string) driver.Pager {
	from := []byte{}
	return func(ctx context.Context) (page driver.Page, err error) {
		rows, err := d.query(ctx, d.shared, d.sql.list, from, []byte(prefix), number(pageRows))
		if err != nil && !noTable(err) {
			return page, err
		}
		for row := range slices.Chunk(rows, 2) {
			if from = row[0]; row[1] != nil {
				page.Names = append(page.Names, string(row[1]))
			}
		}
		page.Last = len(rows) < 2*pageRows
		return page, nil
	}
}

// How a hold is ended by force, in one transaction of force_v1: the row must still have the token
// and the owner that the operator was shown; the owner is written to a logged table, on disk, so
// that it reclaims nothing after a loss; the version rises, so that its late requests take nothing;
// then the lock is handed over (settle_v1).
//
// Lost reply: an error. A repeat ends nothing else: it finds the lock free, or another's.

// ForceRelease implements driver.Operator.
func (d *backend) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	owner, err := hex.DecodeString(shown.Holder.ID)
	owner = append([]byte{}, owner...) // not NULL
	known := err == nil                // or nobody goes by that
	for {
		now, err := d.Inspect(ctx, name)
		switch {
		case err != nil:
			return err
		case !now.Held:
			return driver.ErrNotHeld
		case !known, shown.Token != 0 && shown.Token != now.Token, shown.Holder.ID != "" && shown.Holder.ID != now.Holder.ID:
			return &driver.HeldError{Holder: now.Holder}
		}
		began := time.Now()
		row, err := d.gives.do(ctx, d.sql.force, sqllock.Key(name), owner, number(int64(shown.Token)), d.waiting.id)
		switch {
		case err != nil && !noTable(err):
			return err
		case err == nil && asTruth(row[0]):
			if row[1] != nil {
				d.handOver(ctx, began, row[1], asNumber(row[2]), asNumber(row[3]))
			}
			return nil
		}
	}
}

// sweepRows is how many rows a sweep looks at.
const sweepRows = 1000

// sweep deletes a page of unused rows, dead waiters and dead clients, and returns how many rows of
// locks it has deleted. sweep_v1 keeps the largest version and token of what it deletes in the row
// with the empty key, from which new rows start: a name that comes again has larger ones. It skips
// rows that are locked, and does nothing in the grace of an era, in which every row counts.
func (d *backend) sweep(ctx context.Context) (deleted int64, err error) {
	row, err := d.query(ctx, d.shared, d.sql.sweep, d.sweeper.From, number(sweepRows), number(d.idle.Microseconds()))
	if err != nil {
		return 0, err
	}
	d.sweeper.From = row[0]
	return asNumber(row[1]), nil
}

// settings are what decides whether what is logged lasts: the TTLs in use.
var settings = statement{text: `SELECT current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on'`}

// Warnings makes the Driver a driver.Warner.
func (d *backend) Warnings(ctx context.Context) ([]string, error) {
	row, err := d.query(ctx, d.shared, settings)
	if err != nil {
		return nil, err
	}
	var warnings []string
	warn := func(is bool, text string) {
		if is {
			warnings = append(warnings, text)
		}
	}
	const lost = ": a crash of the machine can lose what the lock has to know of earlier holds, and destroy the data; set it on"
	warn(!asTruth(row[0]), "fsync=off"+lost)
	warn(!asTruth(row[1]), "full_page_writes=off"+lost)
	conn, err := d.listener.connect(ctx)
	switch {
	case err == nil:
		closeConn(conn)
	case errors.Is(err, errPooler):
		warn(true, "notifications do not arrive through a pooler: the Client looks every 100 to 200 ms for its waiters; let the locks connect without the pooler")
	case ctx.Err() != nil:
		return warnings, ctx.Err()
	default:
		warn(true, "no connection can be made to LISTEN on: the Client looks every 100 to 200 ms for its waiters: "+err.Error())
	}
	return warnings, nil
}
