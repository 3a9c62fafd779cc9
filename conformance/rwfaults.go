package conformance

import "slices"

// readerRows tell stories about faults once more, with a reader as the party that the fault is about. All others want the lock alone.
var readerRows = []readerRow{
	{"a share whose reply was lost leaves nothing behind", "A", "a take whose reply was lost leaves nothing behind"},
	{"an RLock whose replies are lost for a while is not held up by itself", "A", "a Lock whose replies are lost for a while is not held up by itself"},
	{"an Unlock of a share whose reply was lost has freed the lock", "A", "an Unlock whose reply was lost has freed the lock"},
	{"a release of a share that is sent again frees the lock", "A", "a release that is sent again says nil or ErrLost, and frees the lock"},
	{"a release that is sent again never says nil if the share had ended", "A", "a release that is sent again never says nil if the hold had ended"},
	{"an Extend of a share whose reply was lost leaves it as it was", "A", "an Extend whose reply was lost leaves the hold as it was"},
	{"a request for a share that arrives late leaves nothing behind", "A", "a take that arrives late leaves nothing behind"},
	{"a request for a share that arrives more than a TTL late takes nothing", "A", "a take that arrives more than a TTL late takes nothing"},
	{"an Unlock of a share that arrives late leaves the writer alone", "A", "an Unlock that arrives late leaves the new hold alone"},
	{"an Unlock of a share that arrives late leaves the next share alone", "A", "an Unlock that arrives late leaves the next hold of the same Locker alone"},
	{"an Extend of a share that arrives late leaves the writer alone", "A", "an Extend that arrives late leaves the new hold alone, and revives nothing"},
	{"a reader that is cut off knows in time, and harms nobody when it is back", "A", "a holder that is cut off knows in time, and harms nobody when it is back"},
	{"a reader that waits and is cut off does not hold up those behind it", "B", "a waiter that is cut off does not hold up those behind it"},
	{"RLock returns soon after ctx ends though the server is silent", "A", "Lock returns soon after ctx ends though the server is silent"},
	{"an RLock that ended while the server was silent leaves nothing behind", "A", "a Lock that ended while the server was silent leaves nothing behind"},
	{"Unlock of a share returns by the deadline though the server is silent", "A", "Unlock returns by the deadline though the server is silent"},
	{"a reader that was stopped past its TTL knows when it wakes", "A", "a process that was stopped past its TTL knows when it wakes"},
	{"the share of a process that was killed expires", "A", "the hold of a process that was killed expires"},
	{"a reader that is killed while it waits does not hold up those behind it", "B", "a process that is killed while it waits does not hold up those behind it"},
}

// readerRow is a scenario of a fault in which the party called who takes shares. Of is the name of
// the one for a Locker.
type readerRow struct{ name, who, of string }

// readers are the scenarios of readerRows, made of those that are told.
func readers(told ...row) []row {
	rows := make([]row, len(readerRows))
	for i, r := range readerRows {
		row := told[slices.IndexFunc(told, func(row row) bool { return row.name == r.of })]
		body := row.body
		row.name = r.name
		row.promise = "For a share, too: " + row.promise
		row.sources = append([]string{contractOfShares}, row.sources...)
		row.needs = append([]need{readsWrites}, row.needs...)
		row.body = func(e *env) {
			e.reader = r.who
			body(e)
		}
		rows[i] = row
	}
	return rows
}
