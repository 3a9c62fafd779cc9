// Package check finds out which promises the locks of a deployment, or of a program, keep. It
// prints nothing.
package check

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/secret"
	"github.com/go-locker/locker/conformance"
)

// Options are the options of a check.
type Options struct {
	Run     string        // only scenarios whose name matches this regular expression
	TTL     time.Duration // 0: the shortest that the backend honours by default
	Prefix  string        // empty: a new one
	Clients int           // at once, at most
	Known   string        // a file of known deviations
	Limit   time.Duration // 0: none
	Program Program       // takes the place of a URL if it has an Exec

	// Callbacks for progress.
	Begun    func(title string, scenarios int)
	Examines func(scenario string)
	Examined func(Verdict)
}

// Scenarios returns the scenarios that o.Run selects.
func (o *Options) Scenarios() ([]conformance.Scenario, error) {
	match, err := regexp.Compile(o.Run)
	if err != nil {
		return nil, outcome.Usagef("--run: %w", secret.Reason(err))
	}
	var scenarios []conformance.Scenario
	for _, s := range conformance.Scenarios() {
		if match.MatchString(s.Name) {
			scenarios = append(scenarios, s)
		}
	}
	if len(scenarios) == 0 {
		return nil, outcome.Usagef("--run: no scenario's name matches")
	}
	return scenarios, nil
}

// Run checks the deployment of a URL, or o.Program. The Report is nil if the check could not begin.
// An error has ended the check; whether promises are broken is said by the Verdict of the Report.
func Run(ctx context.Context, url string, o *Options) (*Report, error) {
	scenarios, err := o.Scenarios()
	if err != nil {
		return nil, err
	}
	known, err := readKnown(o.Known)
	if err != nil {
		return nil, err
	}
	var e *examiner
	if o.Program.Exec != "" {
		e, err = newProgramExaminer(ctx, o)
	} else {
		e, err = newExaminer(ctx, url, o)
	}
	if err != nil {
		return nil, err
	}
	e.harness.Deviations = known
	if o.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Limit,
			outcome.Errorf(outcome.Unreachable, "the check was ended after %v, see --limit", o.Limit))
		defer cancel()
	}
	o.Begun(e.title, len(scenarios))
	report := &Report{
		Backend: e.title, TTL: e.ttl.String(), Prefix: e.prefix, Began: time.Now(), Promises: e.harness.Promises,
		Warnings: e.warnings, Bounds: e.bounds, OfProgram: o.Program.Exec != "",
	}
	err = e.examineAll(ctx, scenarios, report, o)
	report.NotRun = len(scenarios) - len(report.Results)
	report.Seconds = time.Since(report.Began).Seconds()
	report.Left = e.cleanUp(err)
	return report, err
}

func (e *examiner) examineAll(ctx context.Context, scenarios []conformance.Scenario, report *Report, o *Options) error {
	for _, s := range scenarios {
		o.Examines(s.Name)
		v := e.examine(ctx, s)
		if ctx.Err() != nil {
			ended := context.Cause(ctx)
			// The --limit has passed.
			if ctx.Err() == context.DeadlineExceeded && report.Count(conformance.Broken) > 0 {
				return &outcome.Error{Code: outcome.Broken, Err: ended}
			}
			return ended
		}
		var probeErr error
		if v.Outcome == conformance.Broken || v.Outcome == conformance.Undecided {
			// Do not blame a lock for a server that has become unreachable.
			if probeErr = e.probe(ctx); probeErr != nil {
				v.Outcome, v.Seen = conformance.Undecided, fmt.Sprintf("the backend is unreachable now: %v", probeErr)
			}
		}
		report.Results = append(report.Results, v)
		o.Examined(v)
		if probeErr != nil {
			return probeErr
		}
	}
	return nil
}

// readKnown reads a file of known deviations: why, by the name of a scenario. Empty lines and those
// that begin with # say nothing.
func readKnown(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, outcome.Usagef("--known: %w", secret.File(file, err))
	}
	defer f.Close()
	known, errs := map[string]string{}, []error(nil)
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, why, ok := strings.Cut(line, ":")
		name, why = strings.TrimSpace(name), strings.TrimSpace(why)
		switch {
		case !ok || why == "":
			errs = append(errs, fmt.Errorf("line %d: want the name of a scenario, a colon, and the reason", n))
		case !slices.ContainsFunc(conformance.Scenarios(), func(s conformance.Scenario) bool { return s.Name == name }):
			errs = append(errs, fmt.Errorf("line %d: no scenario is called %q", n, name))
		default:
			known[name] = why
		}
	}
	if err := errors.Join(append(errs, lines.Err())...); err != nil {
		return nil, outcome.Usagef("--known: %s: %w", file, err)
	}
	return known, nil
}
