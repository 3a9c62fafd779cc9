package conformance

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
)

var resultsFile = flag.String("conformance.results", "", "file that the results are appended to, as JSON, a line for each scenario")

// Outcome is the result of a scenario in one word.
type Outcome string

// The outcomes.
const (
	Kept      Outcome = "kept"      // the promise was kept
	Broken    Outcome = "broken"    // the promise was broken
	Undecided Outcome = "undecided" // nothing can be said of the Locker: in each trial too little happened, for example
	Known     Outcome = "known"     // broken, as the Harness's Deviations say
	Unseen    Outcome = "unseen"    // a deviation that needs luck, and was not seen this time
	Stale     Outcome = "stale"     // a deviation that should have been seen, and was not
	Skipped   Outcome = "skipped"   // the Harness, or the Locker, lacks what the scenario needs
)

// failed reports whether a test fails. One that has decided nothing does.
func (o Outcome) failed() bool { return o == Broken || o == Undecided || o == Stale }

// Result is the outcome of a scenario for one Locker. Run appends each as a line of JSON to the
// file that the flag -conformance.results names.
type Result struct {
	Test       string           `json:"test"` // the one that called Run
	Scenario   string           `json:"scenario"`
	Promise    string           `json:"promise"`
	Guarantee  locker.Guarantee `json:"guarantee,omitempty"`
	Condition  string           `json:"condition,omitempty"`
	Promised   *locker.Promise  `json:"promised,omitempty"` // what the Harness promises of the guarantee
	Outcome    Outcome          `json:"outcome"`
	Seen       string           `json:"seen,omitempty"` // what was seen of the breach, in the last trial that saw one; or what is missing
	Why        string           `json:"why,omitempty"`  // what Deviations say
	Trials     int              `json:"trials,omitempty"`
	Doubts     int              `json:"doubts,omitempty"` // the number of Trials in doubt: what they saw is a breach only if every trial sees it
	Paused     int              `json:"paused,omitempty"` // of Doubts: the machine paused, or was overloaded
	Operations int64            `json:"operations"`       // calls of Lockers that were made
	Seconds    float64          `json:"seconds"`
}

// judge turns the outcome of a check into a result.
func judge(s Scenario, n engine.Tally, seen error, deviates bool, why string) Result {
	r := Result{
		Scenario: s.Name, Promise: s.Promise, Guarantee: s.Guarantee, Condition: s.Condition, Why: why,
		Trials: n.Trials, Doubts: n.Doubts, Paused: n.Excused,
	}
	found := seen
	if found == nil {
		found = n.Seen
	}
	if found != nil {
		r.Seen = found.Error()
	}
	_, idle := errors.AsType[*engine.IdleFault](seen)
	switch {
	case idle:
		r.Outcome = Broken // by the Harness, whatever the backend is known to break
	case deviates && saysNothing(found):
		r.Outcome = Unseen
	case isSkip(seen):
		r.Outcome = Skipped
		if skip, ok := errors.AsType[*skipError](seen); ok {
			r.Seen = skip.reason
		}
	case deviates && found != nil:
		r.Outcome = Known
	case deviates && s.Deterministic:
		r.Outcome = Stale
	case deviates:
		r.Outcome = Unseen
	case errors.Is(seen, engine.ErrInDoubt):
		r.Outcome = Undecided
	case seen != nil:
		r.Outcome = Broken
	default:
		r.Outcome = Kept
	}
	return r
}

// saysNothing reports whether what was seen says nothing of the lock.
func saysNothing(seen error) bool {
	_, idle := errors.AsType[*engine.IdleFault](seen)
	return idle || errors.Is(seen, engine.ErrInDoubt)
}

// String returns the result for a reader of test output. It is empty if the promise was kept in
// each trial.
func (r Result) String() string {
	switch r.Outcome {
	case Kept:
		if r.Doubts == 0 {
			return ""
		}
		return fmt.Sprintf("kept, in %d of %d trials%s. Seen in another: %s", r.Trials-r.Doubts, r.Trials, r.pauses(), r.Seen)
	case Broken:
		return fmt.Sprintf("\npromise: %s\nseen: %s", r.Promise, r.Seen)
	case Undecided:
		return fmt.Sprintf("\npromise: %s\nundecided: %s", r.Promise, r.Seen)
	case Known:
		return fmt.Sprintf("known deviation: %s\npromise: %s\nseen: %s", r.Why, r.Promise, r.Seen)
	case Unseen:
		return fmt.Sprintf("known deviation: %s\nnot seen this time: it needs luck", r.Why)
	case Stale:
		return fmt.Sprintf("listed as a deviation (%s), but the promise is kept: take it off the list\npromise: %s", r.Why, r.Promise)
	default:
		return "skipped: " + r.Seen
	}
}

// pauses says what the machine had to do with trials in doubt.
func (r Result) pauses() string {
	if r.Paused == 0 {
		return ""
	}
	return fmt.Sprintf("; in %d of the others the machine was overloaded", r.Paused)
}

// save appends r to the file of results, if there is to be one.
func (r Result) save() error {
	if *resultsFile == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(*resultsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("conformance: -conformance.results: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
