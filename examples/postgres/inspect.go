package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/driver"
)

// Inspect makes the Driver a driver.Inspector.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.State, error) {
	var held bool
	var token, left int64
	var owner, metadata []byte
	err := d.pool.QueryRow(ctx, d.sql.inspect, key(name)).Scan(&held, &token, &owner, &metadata, &left)
	switch {
	case errors.Is(err, pgx.ErrNoRows), noTable(err):
		return driver.State{}, nil
	case err != nil:
		return driver.State{}, err
	case !held:
		return driver.State{Token: uint64(token)}, nil
	}
	return driver.State{
		Held:   true,
		Holder: driver.Participant{ID: hex.EncodeToString(owner), Metadata: string(metadata)},
		Left:   time.Duration(left) * time.Microsecond,
		Token:  uint64(token),
	}, nil
}
