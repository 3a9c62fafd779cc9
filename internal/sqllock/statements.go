package sqllock

import (
	"fmt"
	"strconv"
	"strings"
)

// The statements are the same in all dialects, but for a few words:
//
//	{locks}, {waiters}  the tables
//	{now}               microseconds of the clock that holds expire by
//	{wall}              microseconds since 1970
//	{greatest}          the larger of two
//	{ignore}            INSERT that leaves a row which is there already
//	{token}, {returning} have the new token of take returned
//	{primary}           whether this is the server that takes writes: another may know less
//
// MySQL counts rows that have changed, others those that match: here whatever matches changes. It
// sets columns in order, and reads those before as they are by then.
const (
	free  = `(released <> 0 OR until <= {now})`
	waits = `w.until > {now} AND w.until <= {now} + 10000000` // a waiter counts for 5 s: more is of a clock that was set back
	ahead = `EXISTS (SELECT 1 FROM {waiters} AS w WHERE w.lock_key = {locks}.lock_key AND (w.ticket < ? OR w.ticket = ? AND w.owner < ?)
		AND ` + waits + ` AND w.owner <> {locks}.owner)`  // the row of the last owner itself goes when that releases

	look = `SELECT token, owner, metadata, released, until, ttl, {now}, ` + ahead + ` FROM {locks} WHERE lock_key = ? AND {primary}`

	take = `UPDATE {locks} SET token = {token}({greatest}(token + 1, {wall})), metadata = ?, released = 0, ttl = ?, until = {now} + ?, owner = ?
		WHERE lock_key = ? AND token = ? AND ` + free + ` AND NOT ` + ahead + `{returning}`

	// A new row has a token above all that a deleted one has had: that of the row with the empty
	// key, or by the clock.
	insert = `INSERT {ignore} INTO {locks} (lock_key, name, token, owner, metadata, ttl, until, released)
		SELECT ?, ?, {greatest}({wall}, COALESCE(MAX(token), 0)) + 1, X'', X'', 0, {now}, 1 FROM {locks} WHERE lock_key = X''`

	wait  = `REPLACE INTO {waiters} (lock_key, ticket, owner, metadata, until) VALUES (?, ?, ?, ?, ?)`
	leave = `DELETE FROM {waiters} WHERE lock_key = ? AND ticket = ? AND owner = ?`

	extend  = `UPDATE {locks} SET until = {greatest}(until + 1, {now} + ?) WHERE released = 0 AND until > {now} AND `
	ours    = `(lock_key = ? AND owner = ?)`
	release = `UPDATE {locks} SET released = released + 1 WHERE ` + ours + ` AND (released > 0 OR released = 0 AND until > {now})`
	pass    = `UPDATE {locks} SET token = token + 1 WHERE lock_key = ? AND token = ?`

	// shorten has a hold last one TTL from now that ends later than the clock which now runs can have
	// had it end.
	shorten = `UPDATE {locks} SET until = {now} + ttl WHERE lock_key = ? AND until = ? AND released = 0`

	// force ends the hold with this token, unless that is 0, and of this owner, unless that is
	// empty. The owner has not released it.
	force = `UPDATE {locks} SET released = -1 WHERE lock_key = ? AND released = 0 AND until > {now} AND ? IN (0, token) AND ? IN (X'', owner)`

	inspect = `SELECT token, l.owner, l.metadata, CASE WHEN released <> 0 THEN 0 WHEN l.until > {now} + ttl THEN ttl ELSE l.until - {now} END, COALESCE(w.owner, X''), COALESCE(w.metadata, X'')
		FROM {locks} AS l LEFT JOIN {waiters} AS w ON w.lock_key = l.lock_key AND ` + waits + ` AND w.owner <> l.owner
		WHERE l.lock_key = ? ORDER BY w.ticket, w.owner`

	list = `SELECT lock_key, CASE WHEN NOT ` + free + ` AND SUBSTR(name, 1, LENGTH(?)) = ? THEN name ELSE X'' END FROM {locks}
		WHERE lock_key > ? ORDER BY lock_key LIMIT ?`

	// What nobody uses is read first, and then deleted by its key: so no row is locked that
	// somebody uses.
	unused = `until NOT BETWEEN {now} - ? AND {now} + ttl + ? AND ` + free
	idle   = `SELECT lock_key, token, until, ttl, released, ` + unused + ` AND NOT EXISTS (SELECT 1 FROM {waiters} AS w WHERE w.lock_key = {locks}.lock_key)
		FROM {locks} WHERE lock_key > ? ORDER BY lock_key LIMIT ?`
	mark       = `INSERT {ignore} INTO {locks} (lock_key, name, token, owner, metadata, ttl, until, released) VALUES (X'', X'', 0, X'', X'', 0, 0, 1)`
	raise      = `UPDATE {locks} SET token = {greatest}(token, ?) WHERE lock_key = X''`
	deleteIdle = `DELETE FROM {locks} WHERE lock_key = ? AND token = ? AND ` + unused
	dead       = `SELECT lock_key, ticket, owner FROM {waiters} WHERE until NOT BETWEEN {now} AND {now} + 10000000 LIMIT ?`
)

// words is what the dialect says for those in braces that do not change.
func (d *Dialect) words() *strings.Replacer {
	returning := ""
	if d.Token == "" {
		returning = " RETURNING token"
	}
	return strings.NewReplacer("{locks}", d.Locks, "{waiters}", d.Waiters, "{greatest}", d.Greatest, "{ignore}", d.Ignore,
		"{token}", d.Token, "{returning}", returning, "{now}", d.Now, "{wall}", d.Wall, "{primary}", d.Primary)
}

// Fill puts the dialect's words, and the time, into a statement.
func (d *Dialect) Fill(statement string) string {
	if statement = d.words().Replace(statement); d.Clock == nil {
		return statement
	}
	now, wall := d.Clock()
	return strings.NewReplacer("{now}", strconv.FormatInt(now, 10), "{wall}", strconv.FormatInt(wall, 10)).Replace(statement)
}

// bind fills a statement, and where the dialect says so writes its arguments into it.
func (d *Dialect) bind(statement string, args []any) (string, []any) {
	if statement = d.Fill(statement); !d.Literals {
		return statement, args
	}
	var b strings.Builder
	for _, arg := range args {
		before, after, _ := strings.Cut(statement, "?")
		b.WriteString(before)
		if text, ok := arg.([]byte); ok {
			fmt.Fprintf(&b, "X'%x'", text)
		} else {
			fmt.Fprintf(&b, "%d", arg)
		}
		statement = after
	}
	b.WriteString(statement)
	return b.String(), nil
}
