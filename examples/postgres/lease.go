package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/driver"
)

// lease is one grant. seen was the last token before it.
type lease struct {
	driver     *Driver
	key, owner []byte
	seen       int64
	token      int64
	until      atomic.Pointer[time.Time]
}

func (l *lease) Token() uint64 { return uint64(l.token) }

func (l *lease) Validity() time.Duration { return time.Until(*l.until.Load()) }

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
	tag, err := l.driver.pool.Exec(ctx, l.driver.sql.extend, l.key, l.owner, ttl.Microseconds())
	switch {
	case noTable(err), err == nil && tag.RowsAffected() == 0:
		return driver.ErrLost
	case err == nil:
		l.lasts(sent, ttl)
	}
	return err
}

// ExtendAll extends what is due at once in one statement.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
	keys, owners := make([][]byte, len(leases)), make([][]byte, len(leases))
	for i, l := range leases {
		l := l.(*lease)
		keys[i], owners[i] = l.key, l.owner
	}
	sent := time.Now()
	rows, _ := d.pool.Query(ctx, d.sql.extendAll, keys, owners, ttl.Microseconds()) // CollectRows has the error
	extended, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if noTable(err) {
		err = nil
	}
	errs := make([]error, len(leases))
	for i, l := range leases {
		switch l := l.(*lease); {
		case err != nil:
			errs[i] = err
		case !slices.ContainsFunc(extended, func(owner []byte) bool { return bytes.Equal(owner, l.owner) }):
			errs[i] = driver.ErrLost
		default:
			l.lasts(sent, ttl)
		}
	}
	return errs
}

func (l *lease) Release(ctx context.Context) error {
	var ours bool
	err := l.driver.pool.QueryRow(ctx, l.driver.sql.release, l.key, l.owner, l.seen).Scan(&ours)
	if noTable(err) || errors.Is(err, pgx.ErrNoRows) || err == nil && !ours {
		return driver.ErrLost
	}
	return err
}
