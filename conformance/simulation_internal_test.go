package conformance

import (
	"flag"
	"strconv"
	"time"

	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/party"
)

// HistoriesLast has random histories take so long, until undo: the longer, the less luck it takes
// to find a flaw.
func HistoriesLast(d time.Duration) (undo func()) {
	before := party.SomeSeconds
	party.SomeSeconds = d
	return func() { party.SomeSeconds = before }
}

// Doubts has so many trials in doubt be tolerated, until undo.
func Doubts(n int) (undo func()) {
	f := flag.Lookup("conformance.doubts")
	before := f.Value.String()
	set := func(n string) {
		if err := f.Value.Set(n); err != nil {
			panic(err)
		}
	}
	set(strconv.Itoa(n))
	return func() { set(before) }
}

// Trials has a scenario in doubt tried so often, until undo.
func Trials(n int) (undo func()) {
	before := engine.Trials
	engine.Trials = n
	return func() { engine.Trials = before }
}

// IsSkip and Check are for tests that are not of this package.
var IsSkip = engine.IsSkip

// Check tests h once, as Examine does.
func (s Scenario) Check(t TB, h Harness) error { return s.check(t, h) }

// Checking returns a scenario whose check is another.
func (s Scenario) Checking(check func(TB, Harness) error) Scenario {
	s.check = check
	return s
}
