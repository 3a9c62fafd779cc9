package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/driver"
)

// Inspect implements driver.Operator.
func (d *backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	var held bool
	var token, left, age int64
	var owner, metadata []byte
	var waiters, waiting [][]byte
	err := d.read(ctx, func() error {
		return d.row(ctx, d.sql.inspect.text, key(name)).Scan(&held, &token, &owner, &metadata, &left, &age, &waiters, &waiting)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows), noTable(err):
		return driver.State{}, nil
	case err != nil:
		return driver.State{}, err
	}
	s := driver.State{Held: held, Token: uint64(token)}
	if held {
		s.Holder, s.Left = participant(owner, metadata), time.Duration(left)*time.Microsecond
		if age >= 0 { // a token is the time of its grant in µs, unless the clock has gone back since an earlier one
			s.Since = time.Now().Add(-time.Duration(age) * time.Microsecond)
		}
	}
	for i, w := range waiters {
		s.Waiters = append(s.Waiters, participant(w, waiting[i]))
	}
	return s, nil
}

// pageRows is how many rows a page of List looks at.
const pageRows = 1000

// List implements driver.Operator.
func (d *backend) List(prefix string) driver.Pager {
	from := []byte{}
	return func(ctx context.Context) (page driver.Page, err error) {
		var last []byte
		rows := 0
		err = d.read(ctx, func() error {
			page, rows = driver.Page{}, 0
			return d.query(ctx, d.pool, func(result pgx.Rows) error {
				var name []byte
				_, err := pgx.ForEachRow(result, []any{&last, &name}, func() error {
					rows++
					if name != nil {
						page.Names = append(page.Names, string(name))
					}
					return nil
				})
				return err
			}, d.sql.list.text, []any{from, []byte(prefix), int64(pageRows)})
		})
		if err != nil && !noTable(err) {
			return driver.Page{}, err
		}
		from, page.Last = last, rows < pageRows
		return page, nil
	}
}

// ForceRelease implements driver.Operator.
func (d *backend) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	owner, err := ownerOf(shown.Holder.ID)
	known := err == nil // or nobody goes by that
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
		row, err := d.gives.do(ctx, d.sql.force, key(name), owner, number(int64(shown.Token)), d.waiting.id)
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

// ownerOf is what participant has made an ID of.
func ownerOf(id string) ([]byte, error) {
	owner, err := hex.DecodeString(id)
	if owner == nil {
		owner = []byte{}
	}
	return owner, err
}
