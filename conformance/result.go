package conformance

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-locker/locker/internal/stdio"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/contention"
	"github.com/go-locker/locker/conformance/internal/engine"
)

var resultsFile = flag.String("conformance.results", "", "file that the results are appended to, as JSON, a line for each scenario")

// Outcome is the result of a scenario in one word.
type Outcome string

// The outcomes.
const (
	Kept      Outcome = "kept"      // the promise was kept
	Broken    Outcome = "broken"    // the promise was broken
	Undecided Outcome = "undecided" // inconclusive: in each trial too little happened, for example
	Known     Outcome = "known"     // broken, as the Harness's Deviations say
	Unseen    Outcome = "unseen"    // a deviation that needs luck, and was not seen this time
	Stale     Outcome = "stale"     // a deviation that should have been seen, and was not
	Skipped   Outcome = "skipped"   // the Harness, or the Locker, lacks what the scenario needs
)

// failed reports whether the test fails. Undecided fails it, too.
func (o Outcome) failed() bool { return o == Broken || o == Undecided || o == Stale }

// Result is the outcome of a scenario for one Locker. Run appends each as a line of JSON to the
// file that the flag -conformance.results names.
type Result struct {
	Test       string           `json:"test"` // the test that called Run
	Scenario   string           `json:"scenario"`
	Promise    string           `json:"promise"`
	Guarantee  locker.Guarantee `json:"guarantee,omitempty"`
	Condition  string           `json:"condition,omitempty"`
	Promised   *locker.Promise  `json:"promised,omitempty"` // what the Harness promises of it
	Outcome    Outcome          `json:"outcome"`
	Seen       string           `json:"seen,omitempty"` // the breach seen last, or what is missing
	Why        string           `json:"why,omitempty"`  // what Deviations say
	Trials     int              `json:"trials,omitempty"`
	Doubts     int              `json:"doubts,omitempty"` // of Trials: a breach only if all are
	Paused     int              `json:"paused,omitempty"` // of Doubts: machine paused or overloaded
	holds      int              // in the last trial, if many parties contend
	Operations int64            `json:"operations"` // calls of Lockers that were made
	Seconds    float64          `json:"seconds"`
}

// judge turns the outcome of a check into a result.
func judge(s Scenario, n engine.Tally, seen error, deviates bool, why string) Result {
	r := Result{
		Scenario: s.Name, Promise: s.Promise, Guarantee: s.Guarantee, Condition: s.Condition, Why: why,
		Trials: n.Trials, Doubts: n.Doubts, Paused: n.Excused, holds: n.Holds,
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
	case engine.IsSkip(seen):
		r.Outcome = Skipped
		if skip, ok := errors.AsType[*engine.Skip](seen); ok {
			r.Seen = skip.Reason
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
		few := ""
		if r.holds > 0 && r.holds < contention.FewHolds {
			few = fmt.Sprintf("kept, in %d holds: a breach in one of %d may not have been seen. ", r.holds, contention.FewHolds)
		}
		if r.Doubts == 0 {
			return few
		}
		return fmt.Sprintf("%skept, in %d of %d trials%s. Seen in another: %s", few, r.Trials-r.Doubts, r.Trials, r.pauses(), r.Seen)
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

// inItsWords puts a text about a lock in the terms of the protocol instead of Go's. Quoted text is
// the program's own, and stays.
func inItsWords(text string) string {
	return wordsOfGo.ReplaceAllStringFunc(text, func(words string) string {
		if words[0] == '"' {
			return words
		}
		return protocolsWords.Replace(words)
	})
}

var (
	wordsOfGo = regexp.MustCompile(`"(?:\\.|[^"\\])*"|\b(?:ErrHeld|ErrLost|ErrNotHeld|goroutines?)\b` +
		`|\b(?:says|said|returned|want|never) nil\b|: nil; want|\(nil\)`)
	protocolsWords = strings.NewReplacer(
		"ErrHeld", stdio.Held, "ErrLost", stdio.Lost, "ErrNotHeld", stdio.NotHeld,
		"nil", stdio.OK, "goroutine", "caller",
	)
)

// results collects the results of a Run.
type results struct {
	mu  sync.Mutex
	all []Result
}

func (r *results) add(one Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

// summary counts the outcomes, and lists the promises that were kept, but not in each trial, and
// the known deviations.
func (r *results) summary(order []Scenario) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	count, doubts := map[Outcome]int{}, 0
	var list strings.Builder
	for _, s := range order {
		i := slices.IndexFunc(r.all, func(one Result) bool { return one.Scenario == s.Name })
		if i < 0 {
			continue // -run has left it out, or the harness has ended it
		}
		one := r.all[i]
		count[one.Outcome]++
		switch says, _, _ := strings.Cut(one.String(), "\n"); {
		case one.Outcome == Kept && one.Doubts > 0:
			doubts++
			fmt.Fprintf(&list, "\n  %s: %s", s.Name, says)
		case one.Outcome == Unseen:
			fmt.Fprintf(&list, "\n  %s: %s (not seen this time)", s.Name, says)
		case one.Outcome == Known:
			fmt.Fprintf(&list, "\n  %s: %s", s.Name, says)
		}
	}
	return fmt.Sprintf("%d promises kept%s%s%s%s%s%s", count[Kept],
		unlessNone(", %d of them not in each trial", doubts),
		unlessNone("; %d broken", count[Broken]+count[Stale]),
		unlessNone("; %d undecided", count[Undecided]),
		unlessNone("; known deviations: %d", count[Known]),
		unlessNone("; known deviations that were not seen this time: %d", count[Unseen]),
		unlessNone("; %d skipped", count[Skipped])) + list.String()
}

func unlessNone(format string, n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, n)
}
