package sqllock

import (
	"context"
	"database/sql"
	"encoding/hex"
	"time"

	"github.com/go-locker/locker/driver"
)

// Inspect implements driver.Operator.
func (d *Driver) Inspect(ctx context.Context, name string) (s driver.State, err error) {
	type row struct {
		token, left                   int64
		owner, metadata, waiter, says []byte
	}
	rows, err := query(ctx, d, func(r *row) []any {
		return []any{&r.token, &r.owner, &r.metadata, &r.left, &r.waiter, &r.says}
	}, inspect, Key(name))
	for _, r := range rows {
		s.Token = uint64(r.token)
		if r.left > 0 {
			s.Held, s.Holder, s.Left = true, Participant(r.owner, r.metadata), time.Duration(r.left)*time.Microsecond
		}
		if len(r.waiter) > 0 {
			s.Waiters = append(s.Waiters, Participant(r.waiter, r.says))
		}
	}
	return s, err
}

// pageRows is how many rows a page of List, or a sweep, looks at.
const pageRows = 1000

// List implements driver.Operator.
func (d *Driver) List(prefix string) driver.Pager {
	from := []byte{}
	return func(ctx context.Context) (page driver.Page, err error) {
		type row struct{ key, name []byte }
		rows, err := query(ctx, d, func(r *row) []any { return []any{&r.key, &r.name} }, list, []byte(prefix), []byte(prefix), from, pageRows)
		for _, r := range rows {
			if from = r.key; len(r.name) > 0 {
				page.Names = append(page.Names, string(r.name))
			}
		}
		page.Last = len(rows) < pageRows
		return page, err
	}
}

// ForceRelease implements driver.Operator.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	owner, err := hex.DecodeString(shown.Holder.ID)
	if err == nil { // else nobody goes by that
		if owner == nil {
			owner = []byte{}
		}
		n, err := d.exec(ctx, d.pools.Keep, d.Lax, force, Key(name), int64(shown.Token), owner)
		if err != nil {
			return err
		}
		if n > 0 {
			d.waiting.wake(Key(name))
			return nil
		}
	}
	switch now, err := d.Inspect(ctx, name); {
	case err != nil:
		return err
	case !now.Held:
		return driver.ErrNotHeld
	default:
		return &driver.HeldError{Holder: now.Holder}
	}
}

// Drop drops the tables, and with them all locks. cmd/locker has tables of its own.
func (d *Driver) Drop(ctx context.Context) error {
	_, err := run(ctx, d, d.pools.Keep, false, func(ctx context.Context, c *sql.Conn) (sql.Result, error) {
		return c.ExecContext(ctx, d.Fill("DROP TABLE IF EXISTS {waiters}, {locks}"))
	})
	return err
}
