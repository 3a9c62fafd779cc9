package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/conformance"
)

// Verdict is the result of one scenario.
type Verdict struct{ conformance.Result }

// Doubtful reports whether the promise was kept, but not in each trial.
func (v Verdict) Doubtful() bool { return v.Outcome == conformance.Kept && v.Doubts > 0 }

// Share returns in how many trials the promise was kept.
func (v Verdict) Share() string {
	s := fmt.Sprintf("in %d of %d trials", v.Trials-v.Doubts, v.Trials)
	if v.Paused > 0 {
		s += fmt.Sprintf("; in %d of the others the machine was overloaded", v.Paused)
	}
	return s
}

// Report is the result of a check.
type Report struct {
	Backend  string            `json:"backend"`
	TTL      string            `json:"ttl"`
	Prefix   string            `json:"prefix"`
	Began    time.Time         `json:"began"`
	Seconds  float64           `json:"seconds"`
	Promises locker.Guarantees `json:"-"`
	Warnings []string          `json:"warnings,omitempty"` // of settings of the servers
	Bounds   string            `json:"bounds,omitempty"`   // of the load on the servers
	Results  []Verdict         `json:"results"`
	Left     string            `json:"left,omitempty"`    // what could not be cleaned up
	NotRun   int               `json:"not_run,omitempty"` // scenarios, because the check was ended

	OfProgram bool `json:"-"` // and not of a deployment
}

// Count returns how many scenarios had that outcome.
func (r *Report) Count(o conformance.Outcome) (n int) {
	for _, v := range r.Results {
		if v.Outcome == o {
			n++
		}
	}
	return n
}

// Verdict returns an error unless all promises were kept.
func (r *Report) Verdict(strict bool) error {
	switch {
	case r.Count(conformance.Broken) > 0:
		return &outcome.Error{Code: outcome.Broken}
	case r.Count(conformance.Stale) > 0:
		return outcome.Errorf(outcome.Broken, "%d promises of --known are kept: delete their lines", r.Count(conformance.Stale))
	case r.Count(conformance.Undecided) > 0:
		return outcome.Errorf(outcome.Unreachable, "%d scenarios could not be decided", r.Count(conformance.Undecided))
	case strict && len(r.Warnings)+len(r.Doubtful()) > 0:
		return outcome.Errorf(outcome.Broken, "--strict: %d warnings, %d promises not kept in each trial",
			len(r.Warnings), len(r.Doubtful()))
	default:
		return nil
	}
}

// Guarantee is a guarantee in which backends differ: the backend's promise, and the observed
// behaviour.
type Guarantee struct {
	Guarantee locker.Guarantee `json:"guarantee"`
	Promised  string           `json:"promised"`
	Seen      string           `json:"seen"` // held, broken, or not tried
	Scenarios int              `json:"scenarios"`
	Doubtful  int              `json:"doubtful,omitempty"` // kept, but not in each trial
}

// guarantees are the guarantees in which backends differ.
var guarantees = []locker.Guarantee{
	locker.Exclusive, locker.Failover, locker.Fencing, locker.FencingDurable, locker.Ordered, locker.Woken,
}

// Seen returns, for each of these guarantees, whether it was observed to hold.
func (r *Report) Seen() []Guarantee {
	var all []Guarantee
	for _, g := range guarantees {
		s := Guarantee{Guarantee: g, Promised: promised(r.Promises[g]), Seen: "not tried"}
		for _, v := range r.Results {
			if v.Guarantee != g || v.Outcome != conformance.Kept && v.Outcome != conformance.Broken {
				continue
			}
			s.Scenarios++
			if v.Doubtful() {
				s.Doubtful++
			}
			if v.Outcome == conformance.Broken {
				s.Seen = "broken"
			} else if s.Seen != "broken" {
				s.Seen = "held"
			}
		}
		all = append(all, s)
	}
	return all
}

// promised returns a promise in words: of a conditional one the condition, as "while clocks are
// sane".
func promised(p locker.Promise) string {
	if p.Level == locker.LevelConditional {
		return p.Condition
	}
	return p.String()
}

// Notable returns the results that people have to look at: promises kept, but not in each trial;
// then broken promises, known deviations that are kept now, and undecided scenarios.
func (r *Report) Notable() []Verdict {
	failures := slices.DeleteFunc(slices.Clone(r.Results), func(v Verdict) bool {
		return v.Outcome != conformance.Broken && v.Outcome != conformance.Stale && v.Outcome != conformance.Undecided
	})
	return append(r.Doubtful(), failures...)
}

// Doubtful returns the promises that were kept, but not in each trial.
func (r *Report) Doubtful() []Verdict {
	return slices.DeleteFunc(slices.Clone(r.Results), func(v Verdict) bool { return !v.Doubtful() })
}
