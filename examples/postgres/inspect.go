package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker"
)

// Inspect makes the Driver a locker.Inspector.
func (d *driver) Inspect(ctx context.Context, name string) (locker.State, error) {
	var held bool
	var token, left int64
	var owner, metadata []byte
	err := d.pool.QueryRow(ctx, d.sql.inspect, key(name)).Scan(&held, &token, &owner, &metadata, &left)
	switch {
	case errors.Is(err, pgx.ErrNoRows), noTable(err):
		return locker.State{}, nil
	case err != nil:
		return locker.State{}, err
	case !held:
		return locker.State{Token: uint64(token)}, nil
	}
	return locker.State{
		Held:   true,
		Holder: locker.Participant{ID: hex.EncodeToString(owner), Metadata: string(metadata)},
		Left:   time.Duration(left) * time.Microsecond,
		Token:  uint64(token),
	}, nil
}
