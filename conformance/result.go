package conformance

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/go-locker/locker"
)

var resultsFile = flag.String("conformance.results", "", "file that the results are appended to, as JSON, a line for each scenario")

// Outcome is what came of a scenario.
type Outcome string

// The outcomes.
const (
	Kept    Outcome = "kept"    // the promise was kept
	Broken  Outcome = "broken"  // and it was broken
	Known   Outcome = "known"   // broken, as the Harness's Deviations say
	Unseen  Outcome = "unseen"  // a deviation of luck that was not seen this time
	Stale   Outcome = "stale"   // a deviation that should have been seen, and was not
	Skipped Outcome = "skipped" // the Harness, or the Locker, lacks what the scenario needs
)

func (o Outcome) failed() bool { return o == Broken || o == Stale }

// Result is what a scenario said of a Locker. Run appends each as a line of JSON to the file that the flag
// -conformance.results names.
type Result struct {
	Test       string           `json:"test"` // the one that called Run
	Scenario   string           `json:"scenario"`
	Promise    string           `json:"promise"`
	Guarantee  locker.Guarantee `json:"guarantee,omitempty"`
	Condition  string           `json:"condition,omitempty"`
	Promised   *locker.Promise  `json:"promised,omitempty"` // of the guarantee, by the Harness
	Outcome    Outcome          `json:"outcome"`
	Seen       string           `json:"seen,omitempty"` // what was seen of the breach, or what is missing
	Why        string           `json:"why,omitempty"`  // what Deviations say
	Operations int64            `json:"operations"`     // calls of Lockers that were made
	Seconds    float64          `json:"seconds"`
}

// judge turns the outcome of a check into a result.
func judge(s Scenario, seen error, deviates bool, why string) Result {
	r := Result{Scenario: s.Name, Promise: s.Promise, Guarantee: s.Guarantee, Condition: s.Condition, Why: why}
	if seen != nil {
		r.Seen = seen.Error()
	}
	switch {
	case IsSkip(seen):
		r.Outcome = Skipped
		if skip, ok := errors.AsType[*skipError](seen); ok {
			r.Seen = skip.reason
		}
	case deviates && seen != nil:
		r.Outcome = Known
	case deviates && s.Deterministic:
		r.Outcome = Stale
	case deviates:
		r.Outcome = Unseen
	case seen != nil:
		r.Outcome = Broken
	default:
		r.Outcome = Kept
	}
	return r
}

// String is what a person has to know of it: nothing of a promise that was kept.
func (r Result) String() string {
	switch r.Outcome {
	case Kept:
		return ""
	case Broken:
		return fmt.Sprintf("\npromise: %s\nseen: %s", r.Promise, r.Seen)
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
