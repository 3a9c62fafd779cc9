package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/jstemmer/go-junit-report/v2/junit"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// verdict is the result of one scenario.
type verdict struct{ conformance.Result }

// line returns what a person sees during the check. Skipped scenarios are only counted, at the end.
func (v verdict) line() string {
	if v.Outcome == conformance.Skipped {
		return ""
	}
	line := fmt.Sprintf("%-9s %s (%.1f s)", v.Outcome, v.Scenario, v.Seconds)
	if v.doubtful() {
		line += ", " + v.Share()
	}
	if v.Why != "" {
		line += "\n          known deviation: " + v.Why
	}
	if v.Seen != "" {
		line += "\n          promise: " + v.Promise + "\n          seen: " + indent(v.Seen, "          ")
	}
	return line
}

// width is that of a terminal, which reports do not exceed but for words that are longer.
const width = 80

// fold breaks lines between words, and indents what comes after a break.
func fold(text string) string {
	const by = "          "
	var b strings.Builder
	column := 0
	for n, line := range strings.Split(text, "\n") {
		if n > 0 {
			b.WriteByte('\n')
			column = 0
		}
		for i, word := range strings.Split(line, " ") {
			length := utf8.RuneCountInString(word)
			switch {
			case i == 0:
			case column+1+length > width && column > len(by):
				b.WriteString("\n" + by)
				column = len(by)
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += length
		}
	}
	return b.String()
}

// doubtful reports whether the promise was kept, but not in each trial.
func (v verdict) doubtful() bool { return v.Outcome == conformance.Kept && v.Doubts > 0 }

// Share returns in how many trials the promise was kept.
func (v verdict) Share() string {
	s := fmt.Sprintf("in %d of %d trials", v.Trials-v.Doubts, v.Trials)
	if v.Paused > 0 {
		s += fmt.Sprintf("; in %d of the others the machine was overloaded", v.Paused)
	}
	return s
}

// indent puts by in front of all lines of text but the first.
func indent(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }

// checkReport is the result of a check.
type checkReport struct {
	Backend    string            `json:"backend"`
	TTL        string            `json:"ttl"`
	Prefix     string            `json:"prefix"`
	Began      time.Time         `json:"began"`
	Seconds    float64           `json:"seconds"`
	Guarantees locker.Guarantees `json:"-"`
	Warnings   []string          `json:"warnings,omitempty"` // of settings of the servers
	Bounds     string            `json:"bounds,omitempty"`   // of the load on the servers
	Results    []verdict         `json:"results"`
	Left       string            `json:"left,omitempty"`    // what could not be cleaned up
	NotRun     int               `json:"not_run,omitempty"` // scenarios, because the check was ended

	reasons bool // are printed, for what was skipped
	strict  bool // warnings and doubts make the check fail
}

func (r *checkReport) count(o conformance.Outcome) (n int) {
	for _, v := range r.Results {
		if v.Outcome == o {
			n++
		}
	}
	return n
}

// verdict returns an error unless all promises were kept.
func (r *checkReport) verdict() error {
	switch {
	case r.count(conformance.Broken) > 0:
		return &statusError{code: exitBroken}
	case r.count(conformance.Stale) > 0:
		return &statusError{code: exitBroken, err: fmt.Errorf("%d promises of --known are kept: delete their lines", r.count(conformance.Stale))}
	case r.count(conformance.Undecided) > 0:
		return &statusError{code: exitUnreachable, err: fmt.Errorf("%d scenarios could not be decided", r.count(conformance.Undecided))}
	case r.strict && len(r.Warnings)+len(r.Doubtful()) > 0:
		return &statusError{code: exitBroken, err: fmt.Errorf("--strict: %d warnings, %d promises not kept in each trial", len(r.Warnings), len(r.Doubtful()))}
	default:
		return nil
	}
}

func (r *checkReport) write(w io.Writer, format string) error {
	switch format {
	case "json":
		return writeJSON(w, struct {
			*checkReport
			Guarantees []seenGuarantee `json:"guarantees"`
		}{r, r.guarantees()})
	case "junit":
		return r.writeJUnit(w)
	default:
		return r.writeText(w)
	}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// seenGuarantee is a guarantee in which backends differ: what the backend promises, and what was seen.
type seenGuarantee struct {
	Guarantee locker.Guarantee `json:"guarantee"`
	Promised  string           `json:"promised"`
	Seen      string           `json:"seen"` // held, broken, or not tried
	Scenarios int              `json:"scenarios"`
	Doubtful  int              `json:"doubtful,omitempty"` // of Scenarios: kept, but not in each trial
}

// doubts says how many scenarios were not kept in each trial, after a comma, or nothing.
func (g seenGuarantee) doubts() string {
	if g.Doubtful == 0 {
		return ""
	}
	return fmt.Sprintf(", %d in doubt", g.Doubtful)
}

var allGuarantees = []locker.Guarantee{
	locker.Exclusive, locker.Failover, locker.Fencing, locker.FencingDurable, locker.Ordered, locker.Woken,
}

func (r *checkReport) guarantees() []seenGuarantee {
	var all []seenGuarantee
	for _, g := range allGuarantees {
		s := seenGuarantee{Guarantee: g, Promised: promised(r.Guarantees[g]), Seen: "not tried"}
		for _, v := range r.Results {
			if v.Guarantee != g || v.Outcome != conformance.Kept && v.Outcome != conformance.Broken {
				continue
			}
			s.Scenarios++
			if v.doubtful() {
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

// promised returns a promise in words. Of a conditional one it is the condition: "while clocks are sane".
func promised(p locker.Promise) string {
	if p.Level == locker.LevelConditional {
		return p.Condition
	}
	return p.String()
}

func (r *checkReport) guaranteeTable() table.Writer {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"Guarantee", "Promised", "Seen", "Scenarios"})
	for _, g := range r.guarantees() {
		t.AppendRow(table.Row{g.Guarantee, g.Promised, g.Seen + g.doubts(), g.Scenarios})
	}
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, WidthMax: 27, WidthMaxEnforcer: text.WrapSoft}, {Number: 3, WidthMax: 16, WidthMaxEnforcer: text.WrapSoft}, {Number: 4, Align: text.AlignRight}})
	style := table.StyleRounded
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	return t
}

// Failures returns what people have to look at: broken promises, and scenarios that decided
// nothing.
func (r *checkReport) Failures() []verdict {
	return slices.DeleteFunc(slices.Clone(r.Results), func(v verdict) bool {
		return v.Outcome != conformance.Broken && v.Outcome != conformance.Undecided
	})
}

// Doubtful returns the promises that were kept, but not in each trial.
func (r *checkReport) Doubtful() []verdict {
	return slices.DeleteFunc(slices.Clone(r.Results), func(v verdict) bool { return !v.doubtful() })
}

// Summary returns one line.
func (r *checkReport) Summary() string {
	s := fmt.Sprintf("%d promises kept", r.count(conformance.Kept))
	if n := len(r.Doubtful()); n > 0 {
		s += fmt.Sprintf(" (%d of them not in each trial)", n)
	}
	s += fmt.Sprintf(", %d broken, %d undecided", r.count(conformance.Broken), r.count(conformance.Undecided))
	if n := r.count(conformance.Known) + r.count(conformance.Unseen); n > 0 {
		s += fmt.Sprintf(", %d known deviations", n)
	}
	if n := r.count(conformance.Skipped); n > 0 {
		s += fmt.Sprintf("; %d skipped", n)
		if !r.reasons {
			s += ": they would disturb a server in use, or this backend does not promise them"
		}
	}
	return s
}

// Unfinished says how much of a check that was ended did not run.
func (r *checkReport) Unfinished() string {
	return fmt.Sprintf("ended early: %d of %d scenarios did not run", r.NotRun, r.NotRun+len(r.Results))
}

// skipped returns how many scenarios were skipped for each reason.
func (r *checkReport) skipped() []string {
	counts := map[string]int{}
	for _, v := range r.Results {
		if v.Outcome == conformance.Skipped {
			counts[strings.TrimPrefix(v.Seen, "skipped: ")]++
		}
	}
	var lines []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("skipped   %d: %s", counts[reason], flagFor(reason)))
	}
	return lines
}

func (r *checkReport) writeText(w io.Writer) error {
	lines := []string{fmt.Sprintf("%s, TTL %s, %.0f s", r.Backend, r.TTL, r.Seconds)}
	if r.Bounds != "" {
		lines = append(lines, r.Bounds)
	}
	lines = append(lines, r.guaranteeTable().Render())
	for _, warning := range r.Warnings {
		lines = append(lines, "warning   "+warning)
	}
	for _, v := range slices.Concat(r.Doubtful(), r.Failures()) {
		lines = append(lines, v.line())
	}
	if r.reasons {
		lines = append(lines, r.skipped()...)
	}
	lines = append(lines, r.Summary())
	if r.NotRun > 0 {
		lines = append(lines, r.Unfinished())
	}
	if r.Left != "" {
		lines = append(lines, r.Left)
	}
	for _, line := range lines {
		fmt.Fprintln(w, fold(line))
	}
	return nil
}

func (r *checkReport) writeJUnit(w io.Writer) error {
	suite := junit.Testsuite{Properties: r.properties(), Name: "locker check " + r.Backend, Time: seconds(r.Seconds), Timestamp: r.Began.UTC().Format(time.RFC3339)}
	for _, v := range r.Results {
		c := junit.Testcase{Classname: "locker.check", Name: v.Scenario, Time: seconds(v.Seconds)}
		switch v.Outcome {
		case conformance.Skipped:
			c.Skipped = &junit.Result{Message: inXML(v.Seen)}
		case conformance.Broken:
			c.Failure = &junit.Result{Message: v.Promise, Data: inXML(v.Seen)}
		case conformance.Undecided:
			c.Error = &junit.Result{Message: inXML(v.Seen)}
		case conformance.Known, conformance.Unseen:
			c.SystemOut = &junit.Output{Data: inXML(v.line())}
		case conformance.Kept:
			if v.doubtful() {
				c.SystemOut = &junit.Output{Data: inXML(v.line())}
			}
		}
		suite.AddTestcase(c)
	}
	var all junit.Testsuites
	all.AddSuite(suite)
	return all.WriteXML(w)
}

// properties returns the warnings: JUnit has no other place for them.
func (r *checkReport) properties() *[]junit.Property {
	if len(r.Warnings) == 0 {
		return nil
	}
	var all []junit.Property
	for _, warning := range r.Warnings {
		all = append(all, junit.Property{Name: "warning", Value: inXML(warning)})
	}
	return &all
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }

// inXML returns s without characters that XML forbids, even in CDATA. encoding/xml does that only for attributes, and splits "]]>".
func inXML(s string) string {
	return strings.Map(func(r rune) rune { // which has U+FFFD for what is not UTF-8
		if r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == '\ufffe' || r == '\uffff' {
			return '\ufffd'
		}
		return r
	}, s)
}
