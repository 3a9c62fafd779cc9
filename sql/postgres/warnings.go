package postgres

import (
	"context"
	"errors"
)

// settings are what decides whether what is logged lasts: the TTLs in use.
const settings = `SELECT current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on'`

// Warnings makes the Driver a driver.Warner.
func (d *backend) Warnings(ctx context.Context) ([]string, error) {
	var fsync, pages bool
	if err := d.row(ctx, settings).Scan(&fsync, &pages); err != nil {
		return nil, err
	}
	var warnings []string
	warn := func(is bool, text string) {
		if is {
			warnings = append(warnings, text)
		}
	}
	const lost = ": a crash of the machine can lose what the lock has to know of earlier holds, and destroy the data; set it on"
	warn(!fsync, "fsync=off"+lost)
	warn(!pages, "full_page_writes=off"+lost)
	conn, err := d.listener.connect(ctx)
	switch {
	case err == nil:
		closeConn(conn)
	case errors.Is(err, errPooler):
		warn(true, "notifications do not arrive through a pooler: waiters look every 100 to 200 ms; let the locks connect without the pooler")
	case ctx.Err() != nil:
		return warnings, ctx.Err()
	default:
		warn(true, "no connection can be made to LISTEN on: waiters look every 100 to 200 ms: "+err.Error())
	}
	return warnings, nil
}
