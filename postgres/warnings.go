package postgres

import (
	"context"
	"errors"
)

// settings are what decides whether a commit lasts, and how many standbys there are of which none has to have it. A server shows
// standbys' kinds to members of pg_monitor alone.
const settings = `SELECT current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on', current_setting('synchronous_commit'),
	current_setting('synchronous_standby_names') <> '',
	(SELECT count(*) FROM pg_stat_replication), (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('async', 'potential'))`

// Warnings makes the Driver a driver.Warner.
func (d *Driver) Warnings(ctx context.Context) ([]string, error) {
	var fsync, pages, synchronous bool
	var commit string
	var standbys, behind int64
	err := d.row(ctx, settings).Scan(&fsync, &pages, &commit, &synchronous, &standbys, &behind)
	if err != nil {
		return nil, err
	}
	var warnings []string
	warn := func(is bool, text string) {
		if is {
			warnings = append(warnings, text)
		}
	}
	warn(!fsync, "fsync=off: a crash of the machine can lose a hold, and destroy the data; set fsync=on")
	warn(!pages, "full_page_writes=off: a crash of the machine can destroy the table of the locks; set full_page_writes=on")
	warn(commit == "off", "synchronous_commit=off: a crash of the server can lose a hold that was granted; set it on for this user: ALTER ROLE … SET synchronous_commit = on")
	warn(synchronous && (commit == "local" || commit == "remote_write"),
		"synchronous_commit="+commit+": a standby that takes over may not have a hold that was granted; set it on for this user")
	warn(!synchronous && standbys > 0,
		"replication is asynchronous: a standby that takes over may not have a hold that was granted; name standbys in synchronous_standby_names")
	warn(synchronous && behind > 0,
		"some standbys are not synchronous: one of those that takes over may not have a hold that was granted; fail over to a synchronous one alone")
	conn, err := d.listener.connect(ctx)
	switch {
	case err == nil:
		closeConn(conn)
	case errors.Is(err, errPooler):
		warn(true, "notifications do not arrive through a pooler: waiters look every 100 to 200 ms; have locks connect past the pooler")
	case ctx.Err() != nil:
		return warnings, ctx.Err()
	default:
		warn(true, "no connection can be made to LISTEN on: waiters look every 100 to 200 ms: "+err.Error())
	}
	return warnings, nil
}
