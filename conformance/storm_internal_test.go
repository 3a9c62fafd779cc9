package conformance

import "time"

// HistoriesLast has random histories take so long, until undo: the longer, the less luck it takes to find a flaw.
func HistoriesLast(d time.Duration) (undo func()) {
	before := someSeconds
	someSeconds = d
	return func() { someSeconds = before }
}
