package postgres

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed schema.sql
var schema string

// Schema returns the statements that make the tables and the functions, which are in schema public
// if table names none. The first Lock makes them, if the user of the database has the right to do
// so. Locks need SELECT, INSERT, UPDATE and DELETE on the tables: see docs/backends/postgres.md.
func Schema(table string) string { return fill(schema, cmp.Or(table, defaultTable)) }

// statement is what is sent. A connection prepares once what has a name. It plans what has none
// each time, for the tables as they are then.
type statement struct {
	name, text string
	idempotent bool // sent again if its connection breaks
}

// statements are those of one table. Those that are prepared only call functions of schema.sql.
// Operands have the types that an operator of pg_catalog has: else one of another schema may fit
// better.
type statements struct {
	schema string

	enter, unused, take, ask, free, turn, release, extend, reclaim, forced, force, beat, sweep, list, inspect statement
}

// notify tells a Client that one of its waiters has been handed a lock. That need not be on disk.
var notify = named(`SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)`).again()

func statementsFor(table string) statements {
	of := func(text string) statement { return named(fill(text, table)) }
	planned := func(text string) statement { return statement{text: fill(text, table)} }
	return statements{
		schema: fill(schema, table),
		enter:  of(`SELECT * FROM public.locker_locks_enter_v1($1::bytea, $2::bigint, $3::bigint, $4::boolean)`).again(),
		// unused is that a Client has nothing for these TTLs any more. If it is lost they count for
		// a while.
		unused: planned(`WITH gone AS (DELETE FROM public.locker_locks_ttls WHERE client = $1::bytea AND ttl = ANY ($2::bigint[])
			RETURNING set_config('synchronous_commit', 'off', true)) SELECT count(*) FROM gone`),
		ask: of(`SELECT * FROM public.locker_locks_ask_v1($1::bytea, $2::bytea, $3::bytea, $4::bytea, $5::bigint, $6::bigint,
			$7::bigint, $8::bigint)`),
		take: of(`SELECT public.locker_locks_take_v1($1::bytea, $2::bytea, $3::bytea, $4::bigint, $5::bigint, $6::bigint, $7::bigint)`),
		free: of(`SELECT public.locker_locks_free_v1($1::bytea, $2::bytea)`),
		turn: of(`SELECT * FROM public.locker_locks_turn_v1($1::bytea, $2::bytea, $3::bytea, $4::bytea, $5::bigint, $6::bigint,
			$7::bigint, $8::bigint, $9::bigint)`),
		release: of(`SELECT * FROM public.locker_locks_release_v1($1::bytea, $2::bytea, $3::boolean, $4::bigint, $5::bigint, $6::bytea, $7::boolean)`),
		force:   of(`SELECT * FROM public.locker_locks_force_v1($1::bytea, $2::bytea, $3::bigint, $4::bytea)`),
		beat:    planned(`SELECT * FROM public.locker_locks_beat_v1($1::bytea, $2::bytea[], $3::bigint)`),
		sweep:   planned(`SELECT * FROM public.locker_locks_sweep_v1($1::bytea, $2::bigint, $3::bigint)`),

		extend: planned(`SELECT * FROM public.locker_locks_extend_v1($1::bytea[], $2::bytea[], $3::bigint)`),

		// reclaim makes the rows of holds again, in the grace of an era and for those who held them
		// before: of two who do, for the one with the larger token. It returns the owners that have
		// theirs.
		reclaim: planned(`INSERT INTO public.locker_locks AS lock (key, name, era, version, token, owner, metadata, expires_at, former, waited, served)
			SELECT ours.key, ours.name, whole.era, whole.version, ours.token, ours.owner, ours.metadata,
				clock_timestamp() + $6::bigint::float8 * interval '1 microsecond', '', false, 0
			FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bytea[], $5::bytea[]) AS ours (key, name, token, owner, metadata),
				public.locker_locks AS whole
			WHERE whole.key = '' AND whole.era = $7::bigint AND whole.expires_at > clock_timestamp()
				AND whole.served = (extract(epoch FROM pg_postmaster_start_time()) * 1000000.0)::bigint
				AND NOT EXISTS (SELECT FROM public.locker_locks_forced AS f WHERE f.owner = ours.owner) ORDER BY ours.key
			ON CONFLICT (key) DO UPDATE SET token = excluded.token, owner = excluded.owner, metadata = excluded.metadata,
				name = excluded.name, expires_at = excluded.expires_at, era = excluded.era, version = greatest(lock.version, excluded.version)
				WHERE lock.owner = excluded.owner AND (lock.expires_at > clock_timestamp() OR lock.era <> excluded.era) OR lock.owner = decode('00', 'hex')
				OR lock.token < excluded.token
			RETURNING owner`),
		forced: planned(`SELECT EXISTS (SELECT FROM public.locker_locks_forced WHERE owner = $1::bytea)`),

		// inspect reads the clock in a step of its own: what is held has some time left.
		inspect: planned(`SELECT owner NOT IN ('', decode('00', 'hex')) AND remaining > 0, token, owner, metadata, remaining, age,
			ARRAY(SELECT w.owner ` + living + `), ARRAY(SELECT w.metadata ` + living + `)
			FROM (SELECT *, (extract(epoch FROM expires_at - clock_timestamp()) * 1000000.0)::bigint AS remaining,
				(extract(epoch FROM clock_timestamp()) * 1000000.0)::bigint - token AS age
			FROM public.locker_locks WHERE key = $1::bytea AND key <> '' OFFSET 0) AS lock`).again(),

		// list looks at so many rows from a key on.
		list: planned(`SELECT key, CASE WHEN owner NOT IN ('', decode('00', 'hex')) AND expires_at > clock_timestamp()
			AND substr(name, 1, length($2::bytea)) = $2 THEN name END FROM public.locker_locks
			WHERE key > $1::bytea ORDER BY key LIMIT $3::bigint`).again(),
	}
}

// living has one time in a statement: inspect has it twice, for lists of the same length.
const living = `FROM public.locker_locks_waiters AS w JOIN public.locker_locks_clients AS c ON c.client = substr(w.owner, 1, 8)
	AND c.alive_until > statement_timestamp() WHERE w.key = lock.key ORDER BY w.place`

// named gives a statement a name that no other has, also on a connection that a pooler shares out.
func named(text string) statement {
	sum := sha256.Sum256([]byte(text))
	return statement{name: "locker_" + hex.EncodeToString(sum[:12]), text: text}
}

// again returns s as one that may run twice.
func (s statement) again() statement {
	s.idempotent = true
	return s
}

var relation = regexp.MustCompile(`public\.locker_locks(\w*)`)

// fill has a text speak of another table. One without a schema is in public, because users whose
// search_path is not the same would otherwise have a table each, and a holder in each.
func fill(text, table string) string {
	schema, name, ok := strings.Cut(table, ".")
	if !ok {
		schema, name = "public", table
	}
	return relation.ReplaceAllStringFunc(text, func(of string) string {
		return pgx.Identifier{schema, name + strings.TrimPrefix(of, "public.locker_locks")}.Sanitize()
	})
}
