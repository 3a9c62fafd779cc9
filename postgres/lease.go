package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/driver"
)

func (c *claim) Token() uint64 { return uint64(c.token) }

func (c *claim) Validity() time.Duration {
	until := c.until.Load()
	if until == nil {
		return 0 // it waits, or has never been sent
	}
	return time.Until(*until)
}

// lasts notes what a request that was sent at sent has brought. Of two Extends the one sent last may be answered first.
func (c *claim) lasts(sent time.Time, ttl time.Duration) {
	until := sent.Add(ttl)
	for {
		old := c.until.Load()
		if old != nil && old.After(until) || c.until.CompareAndSwap(old, &until) {
			return
		}
	}
}

func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	sent := time.Now()
	n, err := c.of.affect(ctx, c.of.spare(), c.of.sql.extend, c.key, c.owner, ttl.Microseconds())
	switch {
	case noTable(err), err == nil && n == 0:
		return driver.ErrLost
	case err == nil:
		c.lasts(sent, ttl)
	}
	return err
}

var errLocked = errors.New("another transaction has locked the row of the lock")

// ExtendAll extends what is due at once in one statement.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
	keys, owners := make([][]byte, len(leases)), make([][]byte, len(leases))
	for i, l := range leases {
		c := l.(*claim)
		keys[i], owners[i] = c.key, c.owner
	}
	sent, results := time.Now(), map[string]error{}
	err := d.query(ctx, d.spare(), func(rows pgx.Rows) error {
		var owner []byte
		var extended bool
		_, err := pgx.ForEachRow(rows, []any{&owner, &extended}, func() error {
			results[string(owner)] = nil
			if !extended {
				results[string(owner)] = errLocked
			}
			return nil
		})
		return err
	}, d.sql.extendAll, []any{keys, owners, ttl.Microseconds()})
	if noTable(err) {
		err = nil
	}
	errs := make([]error, len(leases))
	for i, l := range leases {
		c := l.(*claim)
		result, held := results[string(c.owner)]
		switch {
		case err != nil:
			errs[i] = err
		case !held:
			errs[i] = driver.ErrLost
		case result != nil:
			errs[i] = result
		default:
			c.lasts(sent, ttl)
		}
	}
	return errs
}

// Release ends the hold, or the wait.
func (c *claim) Release(ctx context.Context) error {
	c.of.listener.leave(c.owner)
	if !c.known {
		return nil
	}
	var ours, woken, safe bool
	var version, sent int64
	if c.doubtful {
		sent = c.seen
	}
	err := c.of.rowOn(ctx, c.of.spare(), c.of.sql.release, c.key, c.owner, sent).Scan(&ours, &version, &woken, &safe)
	switch {
	case noTable(err), errors.Is(err, pgx.ErrNoRows), err == nil && !ours:
		return driver.ErrLost
	case err == nil:
		c.of.seen.remember(c.key, remembered{version, c.waited})
	}
	return err
}
