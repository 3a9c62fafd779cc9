package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// Schema returns the statement that makes the table, which is in schema public if table names none. The first Lock makes the
// table if its user may. Locks need SELECT, INSERT, UPDATE and DELETE on it.
//
// A row stays for an hour after its lock was last held. The one with the empty name has the largest token of those that were deleted.
func Schema(table string) string { return fill(schema, table) }

// Half of each page stays empty, so that a row is updated in its page, and no index is.
const schema = `CREATE TABLE IF NOT EXISTS {table} (
	key        bytea PRIMARY KEY,     -- SHA-256 of name, which may be longer than an index allows
	name       bytea NOT NULL,        -- bytea, because text holds no NUL
	token      bigint NOT NULL,       -- of the last grant
	version    bigint NOT NULL,       -- one more when an attempt ends of which a request was not answered
	owner      bytea NOT NULL,        -- who was granted it: random bytes
	metadata   bytea NOT NULL,
	expires_at timestamptz NOT NULL,
	released   boolean NOT NULL,
	waiters    bytea[] NOT NULL DEFAULT '{}',       -- who waits, as owner, in the order in which they came
	alive      timestamptz[] NOT NULL DEFAULT '{}', -- until when each of them counts
	waiting    bytea[] NOT NULL DEFAULT '{}'        -- the metadata of each
) WITH (fillfactor = 50)`

// The statements are one transaction each. One that waited for another's looks at what that has left, under READ COMMITTED; under other
// isolation levels it fails, and is run again. The clock is the server's, read when a row is looked at, not when the transaction began.
const (
	free   = `(released OR expires_at <= clock_timestamp())`
	waited = `(clock_timestamp() < ANY (alive))`
	micros = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

	// insert makes a free row, with a token larger than all that a lost one has had: by the clock, for nobody grants a million a second; or
	// by the mark that sweeps leave, if the clock was set back.
	insert = `INSERT INTO {table} (key, name, token, version, owner, metadata, expires_at, released)
		VALUES ($1, $2, greatest(` + micros + `, (SELECT token FROM {table} WHERE key = '')), ` + micros + `, '', '', clock_timestamp(), true) ON CONFLICT DO NOTHING RETURNING version`

	// take takes the lock if it is free, and its version is the one that was seen: that is what makes a take harmless that
	// arrives after its clean-up. The token is that of the clock if it can be: a row that comes from a backup, or has lost
	// its last commits, does not know how far it was. Where it takes nothing it writes nothing, and returns what there is.
	take = `WITH taken AS (UPDATE {table} SET token = greatest(token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
		owner = $3, metadata = $5, released = false, expires_at = clock_timestamp() + $4 * interval '1 microsecond',
		waiters = '{}', alive = '{}', waiting = '{}'
		WHERE key = $1 AND version = $2 AND ` + free + ` AND NOT ` + waited + ` RETURNING token)
		SELECT token, 0, true, false, '', '' FROM taken
		UNION ALL
		SELECT 0, version, ` + free + `, ` + waited + `, owner, metadata FROM {table} WHERE key = $1 AND NOT EXISTS (SELECT FROM taken)`

	extend = `UPDATE {table} SET expires_at = clock_timestamp() + $3 * interval '1 microsecond'
		WHERE key = $1 AND owner = $2 AND NOT released AND expires_at > clock_timestamp()`

	// extendAll is extend of many. It leaves out a row that another transaction has locked, because the others must not wait for
	// it. It returns the owners that it has extended, and those that it has left out and that still held when it began.
	extendAll = `WITH ours AS (SELECT * FROM unnest($1::bytea[], $2::bytea[]) AS ours (key, owner)),
		unlocked AS (SELECT key, owner FROM {table} AS lock JOIN ours USING (key, owner) FOR UPDATE OF lock SKIP LOCKED),
		extended AS (UPDATE {table} AS lock SET expires_at = clock_timestamp() + $3 * interval '1 microsecond'
			FROM unlocked WHERE lock.key = unlocked.key AND lock.owner = unlocked.owner
			AND NOT released AND expires_at > clock_timestamp() RETURNING lock.key, lock.owner)
		SELECT owner, true FROM extended
		UNION ALL
		SELECT owner, false FROM {table} JOIN ours USING (key, owner)
			WHERE NOT released AND expires_at > statement_timestamp() AND key NOT IN (SELECT key FROM unlocked)`

	// release of what is released already succeeds, while nobody else has taken it. If a take was not answered, $3 is the version with which
	// it was sent: the release moves that on, so that a take which arrives later finds another. It ends a wait, too, and wakes the next.
	//
	// That a lock was released need not be on disk: after a crash it may be held until it expires.
	release = `UPDATE {table} SET released = released OR owner = $2 AND expires_at > clock_timestamp(),
		version = CASE WHEN version = $3 THEN version + 1 ELSE version END,
		` + leave + `
		WHERE key = $1 AND (version = $3 OR $2 = ANY (waiters) OR owner = $2 AND (released OR expires_at > clock_timestamp()))
		RETURNING owner = $2 AND released, version, ` + wake + `, CASE WHEN owner = $2 AND $3 = 0 THEN set_config('synchronous_commit', 'off', true) END IS NULL`

	// inspect reads the clock in a step of its own: what is held has some time left.
	inspect = `SELECT NOT (released OR remaining <= 0), token, owner, metadata, remaining, age,
		ARRAY(SELECT w FROM unnest(waiters, alive) WITH ORDINALITY AS q (w, until, i) WHERE until > statement_timestamp() ORDER BY i),
		ARRAY(SELECT says FROM unnest(waiting, alive) WITH ORDINALITY AS q (says, until, i) WHERE until > statement_timestamp() ORDER BY i)
		FROM (SELECT *,
		CASE WHEN released THEN 0 ELSE (extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint END AS remaining,
		(extract(epoch FROM clock_timestamp()) * 1000000)::bigint - token AS age
		FROM {table} WHERE key = $1 OFFSET 0) AS lock`
)

// statements are those of one table.
type statements struct {
	schema, insert, take, ask, extend, extendAll, release, inspect, list, force, sweep string
}

func statementsFor(table string) statements {
	return statements{
		schema: fill(schema, table), insert: fill(insert, table), take: fill(take, table), ask: fill(ask, table),
		extend: fill(extend, table), extendAll: fill(extendAll, table), release: fill(release, table),
		inspect: fill(inspect, table), list: fill(list, table), force: fill(force, table), sweep: fill(sweep, table),
	}
}

// identifier quotes the name of a table. One without a schema is in public, because users whose search_path is not the same would
// otherwise have a table each, and a holder in each.
func identifier(table string) string {
	schema, name, ok := strings.Cut(table, ".")
	if !ok {
		schema, name = "public", table
	}
	return pgx.Identifier{schema, name}.Sanitize()
}

func fill(statement, table string) string {
	return strings.ReplaceAll(statement, "{table}", identifier(table))
}
