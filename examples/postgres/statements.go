package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// Schema is the statement that makes the table, for those whose users may not: else the first Lock makes it.
//
// A row stays when its lock is free, for the token that the next holder has to exceed. Rows of locks that expired or were
// released long ago may be deleted, unless the server's clock was set back: tokens are its microseconds since 1970.
func Schema(table string) string { return fill(schema, table) }

const schema = `CREATE TABLE IF NOT EXISTS {table} (
	key        bytea PRIMARY KEY,     -- SHA-256 of name, which may be longer than an index allows
	name       bytea NOT NULL,        -- bytea, because text holds no NUL
	token      bigint NOT NULL,       -- of the last grant
	owner      bytea NOT NULL,        -- who was granted it: 16 random bytes
	expires_at timestamptz NOT NULL,
	released   boolean NOT NULL,
	metadata   bytea NOT NULL
)`

// The statements are one transaction each, under READ COMMITTED: one that waited for another's looks at what that has
// left. The clock is the server's, read when a row is looked at, not when the transaction began.
const (
	free = `(released OR expires_at <= clock_timestamp())`

	// look returns whether the lock is free, and what its token was.
	look = `SELECT token, ` + free + ` FROM {table} WHERE key = $1`

	// insert makes a free row, with a token larger than all that a lost one has had: nobody grants a million a second.
	insert = `INSERT INTO {table} VALUES
		($1, $2, extract(epoch FROM clock_timestamp()) * 1000000, '', '-infinity', true, '') ON CONFLICT DO NOTHING`

	// take takes the lock if it is free, and nobody has taken it since look: that is what makes a take harmless that
	// arrives after its clean-up. The token is that of the clock if it can be: a row that comes from a backup, or has lost
	// its last commits, does not know how far it was.
	take = `UPDATE {table} SET token = greatest(token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), owner = $3, metadata = $5, released = false,
		expires_at = clock_timestamp() + $4 * interval '1 microsecond'
		WHERE key = $1 AND token = $2 AND ` + free + ` RETURNING token`

	extend = `UPDATE {table} SET expires_at = clock_timestamp() + $3 * interval '1 microsecond'
		WHERE key = $1 AND owner = $2 AND NOT released AND expires_at > clock_timestamp()`

	// extendAll is extend of many, in the order of their keys, lest two of them wait for each other.
	extendAll = `UPDATE {table} SET expires_at = clock_timestamp() + $3 * interval '1 microsecond'
		FROM (SELECT key, owner FROM {table} JOIN unnest($1::bytea[], $2::bytea[]) AS ours (key, owner) USING (key, owner)
			ORDER BY key FOR UPDATE OF {table}) AS ours
		WHERE {table}.key = ours.key AND {table}.owner = ours.owner AND NOT released AND expires_at > clock_timestamp()
		RETURNING {table}.owner`

	// release of what is released already succeeds, while nobody else has taken it. Before its take has arrived it
	// moves the token on, so that the take finds another than it has seen.
	release = `UPDATE {table} SET released = released OR owner = $2, token = CASE WHEN owner = $2 THEN token ELSE token + 1 END
		WHERE key = $1 AND (token = $3 OR owner = $2 AND (released OR expires_at > clock_timestamp())) RETURNING owner = $2`

	// inspect reads the clock in a step of its own: what is held has some time left.
	inspect = `SELECT NOT (released OR remaining <= 0), token, owner, metadata, remaining FROM (SELECT *,
		CASE WHEN released THEN 0 ELSE (extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint END AS remaining
		FROM {table} WHERE key = $1 OFFSET 0) AS lock`
)

// statements are those of one table.
type statements struct{ schema, look, insert, take, extend, extendAll, release, inspect string }

func statementsFor(table string) statements {
	return statements{
		schema: fill(schema, table), look: fill(look, table), insert: fill(insert, table), take: fill(take, table),
		extend: fill(extend, table), extendAll: fill(extendAll, table), release: fill(release, table), inspect: fill(inspect, table),
	}
}

func fill(statement, table string) string {
	return strings.ReplaceAll(statement, "{table}", pgx.Identifier(strings.Split(table, ".")).Sanitize())
}
