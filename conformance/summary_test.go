package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What was in doubt and what is known to be broken is listed, in the order of the scenarios. It is counted apart from what was skipped.
func TestSummary(t *testing.T) {
	var r results
	for _, one := range []Result{
		{Scenario: "e", Outcome: Skipped, Seen: "no server"},
		{Scenario: "d", Outcome: Unseen, Why: "by luck"},
		{Scenario: "c", Outcome: Known, Why: "by design", Seen: "two at once"},
		{Scenario: "b", Outcome: Kept, Trials: 5, Doubts: 2, Paused: 1, Seen: "it hangs\nand hangs"},
		{Scenario: "f", Outcome: Broken, Seen: "two at once"},
		{Scenario: "h", Outcome: Undecided, Seen: "in doubt"},
		{Scenario: "g", Outcome: Stale},
		{Scenario: "a", Outcome: Kept, Trials: 1},
	} {
		r.add(one)
	}
	var order []Scenario
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "left out by -run"} {
		order = append(order, Scenario{Name: name})
	}
	assert.Equal(t, "2 promises kept, 1 of them not in each trial; 2 broken; 1 undecided; known deviations: 1; "+
		`known deviations that were not seen this time: 1; 1 skipped
  b: kept, in 3 of 5 trials; in 1 of the others the machine was overloaded. Seen in another: it hangs
  c: known deviation: by design
  d: known deviation: by luck (not seen this time)`, r.summary(order))
	assert.Equal(t, "0 promises kept", new(results).summary(order))
}
