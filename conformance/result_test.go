package conformance

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestResult_isALineOfTheFile(t *testing.T) {
	was := *resultsFile
	t.Cleanup(func() { *resultsFile = was })
	*resultsFile = filepath.Join(t.TempDir(), "results")
	want := []Result{
		{Test: "TestA", Scenario: "s", Promise: "P.", Outcome: Kept, Operations: 7, Seconds: 0.25},
		{
			Test: "TestA", Scenario: "s2", Promise: "P.", Guarantee: locker.Fencing, Condition: "failover",
			Outcome: Known, Seen: "two\nat once", Why: "by design",
		},
	}
	for _, r := range want {
		require.NoError(t, r.save())
	}
	text, err := os.ReadFile(*resultsFile)
	require.NoError(t, err)
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	require.Len(t, lines, len(want))
	for i, line := range lines {
		var got Result
		require.NoError(t, json.Unmarshal(line, &got))
		assert.Equal(t, want[i], got)
	}
}

func TestResult_isNotSavedUnasked(t *testing.T) {
	was := *resultsFile
	t.Cleanup(func() { *resultsFile = was })
	*resultsFile = ""
	require.NoError(t, Result{}.save())
	*resultsFile = filepath.Join(t.TempDir(), "no such folder", "results")
	assert.Error(t, Result{}.save(), "a file that cannot be written is not passed over")
}

// TestExamine_countsOperations: what is said of a scenario says how much was tried.
func TestExamine_countsOperations(t *testing.T) {
	s := Scenario{Name: "a b", Promise: "P.", Guarantee: locker.Fencing, check: func(_ TB, h Harness) error {
		h.operations.Add(3)
		return nil
	}}
	h := Harness{operations: new(atomic.Int64), Promises: locker.Guarantees{locker.Fencing: {Level: locker.LevelYes}}}
	h.operations.Add(4)
	t.Run(s.Name, func(t *testing.T) {
		r := Examine(t, s, h)
		assert.Equal(t, Kept, r.Outcome)
		assert.Equal(t, int64(3), r.Operations)
		assert.Equal(t, "TestExamine_countsOperations", caller(t.Name(), s.Name))
		require.NotNil(t, r.Promised)
		assert.Equal(t, locker.LevelYes, r.Promised.Level)
	})
}

// A program that dies in a scenario ends that, as any Fatalf of the Harness. It is counted, and has
// its line.
func TestReport_ofAScenarioThatTheHarnessEnds(t *testing.T) {
	var all results
	t.Run("s", func(t *testing.T) {
		report(t, Scenario{Name: "s", Promise: "P.", check: func(TB, Harness) error { t.SkipNow(); return nil }}, Harness{}, &all)
	})
	require.Len(t, all.all, 1)
	assert.Equal(t, Undecided, all.all[0].Outcome)
}

// What was in doubt and what is known to be broken is listed, in the order of the scenarios. It is
// counted apart from what was skipped.
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
