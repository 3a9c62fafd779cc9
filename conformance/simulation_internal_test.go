package conformance

import "time"

// HistoriesLast has random histories take so long, until undo: the longer, the less luck it takes to find a flaw.
func HistoriesLast(d time.Duration) (undo func()) {
	before := someSeconds
	someSeconds = d
	return func() { someSeconds = before }
}

// Doubts has so many trials in doubt be tolerated, until undo.
func Doubts(n int) (undo func()) {
	before := *doubtsFlag
	*doubtsFlag = n
	return func() { *doubtsFlag = before }
}

// Trials has a scenario in doubt tried so often, until undo.
func Trials(n int) (undo func()) {
	before := trials
	trials = n
	return func() { trials = before }
}
