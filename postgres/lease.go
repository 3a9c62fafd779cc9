package postgres

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/driver"
)

// lease is one attempt, and what it was granted. seen is the version with which it may take the lock.
type lease struct {
	driver     *Driver
	key, owner []byte
	seen       int64
	token      int64
	known      bool // to the server, or it may be
	doubtful   bool // a take was not answered, and may arrive yet
	waited     bool
	until      atomic.Pointer[time.Time]
}

func (l *lease) Token() uint64 { return uint64(l.token) }

func (l *lease) Validity() time.Duration {
	until := l.until.Load()
	if until == nil {
		return 0 // it waits, or has never been sent
	}
	return time.Until(*until)
}

// lasts notes what a request that was sent at sent has brought. Of two Extends the one sent last may be answered first.
func (l *lease) lasts(sent time.Time, ttl time.Duration) {
	until := sent.Add(ttl)
	for {
		old := l.until.Load()
		if old != nil && old.After(until) || l.until.CompareAndSwap(old, &until) {
			return
		}
	}
}

func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	sent := time.Now()
	n, err := l.driver.affect(ctx, l.driver.spare(), l.driver.sql.extend, l.key, l.owner, ttl.Microseconds())
	switch {
	case noTable(err), err == nil && n == 0:
		return driver.ErrLost
	case err == nil:
		l.lasts(sent, ttl)
	}
	return err
}

var errLocked = errors.New("another transaction has locked the row of the lock")

// ExtendAll extends what is due at once in one statement.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
	keys, owners := make([][]byte, len(leases)), make([][]byte, len(leases))
	for i, l := range leases {
		l := l.(*lease)
		keys[i], owners[i] = l.key, l.owner
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
		l := l.(*lease)
		result, held := results[string(l.owner)]
		switch {
		case err != nil:
			errs[i] = err
		case !held:
			errs[i] = driver.ErrLost
		case result != nil:
			errs[i] = result
		default:
			l.lasts(sent, ttl)
		}
	}
	return errs
}

func (l *lease) Release(ctx context.Context) error {
	var ours, woken, safe bool
	var version, sent int64
	if l.doubtful {
		sent = l.seen
	}
	err := l.driver.rowOn(ctx, l.driver.spare(), l.driver.sql.release, l.key, l.owner, sent).Scan(&ours, &version, &woken, &safe)
	switch {
	case noTable(err), errors.Is(err, pgx.ErrNoRows), err == nil && !ours:
		return driver.ErrLost
	case err == nil:
		l.driver.seen.remember(l.key, remembered{version, l.waited})
	}
	return err
}
