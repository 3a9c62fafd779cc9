package postgres

// The queue of a lock is in its row. A waiter counts until its mark in alive has ended, and then has to come again.
//
// In these statements the time is statement_timestamp(), which is the same wherever a statement reads it. While a statement waits
// for another's, it gets old: then a hold or a mark that has ended meanwhile counts as one that has not, and a new hold is shorter. Its
// caller counts from before that.
const (
	mine = `(owner = $3 AND NOT released AND expires_at > statement_timestamp())`

	place = `coalesce(array_position(waiters, $3), cardinality(waiters) + 1)`
	first = `(NOT statement_timestamp() < ANY (alive[:` + place + ` - 1]))`

	// turn is whether the lock is for $3 now, or already is.
	turn = `(` + mine + ` OR (released OR expires_at <= statement_timestamp()) AND ` + first + `)`

	// left is for how many microseconds the lock is held.
	left = `CASE WHEN released THEN 0 ELSE greatest(0, (extract(epoch FROM expires_at - statement_timestamp()) * 1000000)::bigint) END`

	// ask takes the lock if that is free, and nobody waits who came earlier. Otherwise it joins the queue, and sets the mark of a waiter
	// that waits already, if a third of that is used up. It does nothing for one that does not wait, if the version
	// is not the one that was seen: see take.
	//
	// A grant has to be on disk, and a place in the queue need not: who has lost it in a crash comes again.
	ask = `WITH asked AS (UPDATE {table} SET
			token = CASE WHEN ` + turn + ` AND NOT ` + mine + ` THEN greatest(token + 1, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint) ELSE token END,
			owner = CASE WHEN ` + turn + ` THEN $3 ELSE owner END,
			metadata = CASE WHEN ` + turn + ` THEN $5 ELSE metadata END,
			released = CASE WHEN ` + turn + ` THEN false ELSE released END,
			expires_at = CASE WHEN ` + turn + ` THEN statement_timestamp() + $4 * interval '1 microsecond' ELSE expires_at END,
			waiters = ` + queuedFirst + `w` + queuedRest + `ARRAY[$3::bytea]` + queuedEnd + `,
			alive = ` + queuedFirst + `CASE WHEN w = $3 THEN ` + mark + ` ELSE until END` + queuedRest + `ARRAY[` + mark + `]` + queuedEnd + `,
			waiting = ` + queuedFirst + `says` + queuedRest + `ARRAY[$5::bytea]` + queuedEnd + `
		WHERE key = $1 AND (version = $2 OR $3 = ANY (waiters) OR ` + mine + `) AND (` + turn + ` OR array_position(waiters, $3) IS NULL
			OR alive[array_position(waiters, $3)] < statement_timestamp() + $6::bigint * 2 / 3 * interval '1 microsecond')
		RETURNING {table}.*, CASE WHEN owner = $3 AND NOT released THEN NULL ELSE set_config('synchronous_commit', 'off', true) END)
		SELECT owner = $3 AND NOT released, $3 = ANY (waiters), token, version, CASE WHEN ` + first + ` THEN 0 ELSE ` + place + ` - 1 END, ` + left + `, owner, metadata FROM asked
		UNION ALL
		SELECT false, $3 = ANY (waiters), token, version, CASE WHEN ` + first + ` THEN 0 ELSE ` + place + ` - 1 END, ` + left + `, owner, metadata FROM {table}
			WHERE key = $1 AND NOT EXISTS (SELECT FROM asked)`

	mark = `(statement_timestamp() + $6 * interval '1 microsecond')`

	// What a column of the queue is after ask: without the dead, without $3 if it has the lock, else with it at its place or the end.
	queuedFirst = `CASE WHEN waiters = '{}' AND ` + turn + ` THEN '{}' ELSE ARRAY(SELECT `
	queuedRest  = ` FROM unnest(waiters, alive, waiting) WITH ORDINALITY AS q (w, until, says, i)
				WHERE CASE WHEN w = $3 THEN NOT ` + turn + ` ELSE until > statement_timestamp() END ORDER BY i)
				|| CASE WHEN ` + turn + ` OR $3 = ANY (waiters) THEN '{}' ELSE `
	queuedEnd = ` END END`

	// leave has the queue without $2, and then also without the dead: a queue that is not changed is not written.
	leave = `waiters = ` + leftIn + `waiters` + leftFirst + `w` + leftRest + `, alive = ` + leftIn + `alive` + leftFirst + `until` + leftRest +
		`, waiting = ` + leftIn + `waiting` + leftFirst + `says` + leftRest

	leftIn    = `CASE WHEN array_position(waiters, $2) IS NULL THEN `
	leftFirst = ` ELSE ARRAY(SELECT `
	leftRest  = ` FROM unnest(waiters, alive, waiting) WITH ORDINALITY AS q (w, until, says, i)
			WHERE w <> $2 AND until > statement_timestamp() ORDER BY i) END`

	// wake tells the first of those who wait, on the channel of its Driver, that the lock is free. Who is told nothing has eight
	// zeros for a Driver.
	wake = `CASE WHEN (released OR expires_at <= statement_timestamp()) AND waiters <> '{}' THEN (
			SELECT pg_notify('locker_' || encode(substr(w, 1, 8), 'hex'), encode(w, 'hex')) IS NULL
			FROM (SELECT w FROM unnest(waiters, alive) WITH ORDINALITY AS q (w, until, i) WHERE until > statement_timestamp() ORDER BY i LIMIT 1) AS next
			WHERE substr(w, 1, 8) <> decode('0000000000000000', 'hex')) END IS NULL`

	// force ends the hold with this token, unless that is 0, and of the owner $2, unless that is empty.
	force = `UPDATE {table} SET released = true, owner = '', version = version + 1
		WHERE key = $1 AND NOT released AND expires_at > clock_timestamp() AND ($3::bigint = 0 OR token = $3) AND ($2 = ''::bytea OR owner = $2)
		RETURNING ` + wake

	// list looks at so many rows from a key on.
	list = `SELECT key, CASE WHEN NOT ` + free + ` AND substr(name, 1, length($2::bytea)) = $2 THEN name END FROM {table}
		WHERE key > $1 ORDER BY key LIMIT $3`

	// sweep looks at so many rows from a key on, and deletes those that nobody has held or waited for during so many microseconds.
	// The row with the empty key keeps the largest of their tokens. It returns the last key that it looked at, or '' at
	// the end of the table.
	sweep = `WITH seen AS (SELECT key FROM {table} WHERE key > $1 ORDER BY key LIMIT $2),
		idle AS (SELECT key FROM {table} WHERE key > $1 AND key <= (SELECT key FROM seen ORDER BY key DESC LIMIT 1)
			AND expires_at < clock_timestamp() - $3 * interval '1 microsecond' AND NOT ` + waited + `
			FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM {table} USING idle WHERE {table}.key = idle.key
			RETURNING token, set_config('synchronous_commit', 'off', true)),
		mark AS (INSERT INTO {table} (key, name, token, version, owner, metadata, expires_at, released)
			SELECT '', '', max(token), 0, '', '', 'infinity', true FROM gone HAVING count(*) > 0
			ON CONFLICT (key) DO UPDATE SET token = greatest({table}.token, excluded.token))
		SELECT coalesce((SELECT key FROM seen ORDER BY key OFFSET $2 - 1 LIMIT 1), ''), (SELECT count(*) FROM gone)`
)
