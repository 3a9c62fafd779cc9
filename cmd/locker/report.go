package main

import (
	"cmp"
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

	"github.com/go-locker/locker/cmd/locker/internal/check"
	"github.com/go-locker/locker/conformance"
)

// line returns what a person sees during the check. Skipped scenarios are only counted, at the end.
func line(v check.Verdict) string {
	if v.Outcome == conformance.Skipped {
		return ""
	}
	line := fmt.Sprintf("%-9s %s (%.1f s)", v.Outcome, v.Scenario, v.Seconds)
	if v.Doubtful() {
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

// fold breaks lines between words, and indents continuation lines.
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
			case column+1+length > columns && column > len(by):
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

// indent puts by in front of all lines of text but the first.
func indent(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }

func writeReport(w io.Writer, r *check.Report, format string) error {
	switch format {
	case "json":
		return writeJSON(w, struct {
			*check.Report
			Guarantees []check.Guarantee `json:"guarantees"`
		}{r, r.Seen()})
	case "junit":
		return writeJUnit(w, r)
	default:
		return writeText(w, r)
	}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// doubts says how many scenarios were not kept in each trial, after a comma, or nothing.
func doubts(g check.Guarantee) string {
	if g.Doubtful == 0 {
		return ""
	}
	return fmt.Sprintf(", %d in doubt", g.Doubtful)
}

func guaranteeTable(r *check.Report) table.Writer {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"Guarantee", "Promised", "Seen", "Scenarios"})
	for _, g := range r.Seen() {
		t.AppendRow(table.Row{g.Guarantee, g.Promised, g.Seen + doubts(g), g.Scenarios})
	}
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, WidthMax: 27, WidthMaxEnforcer: text.WrapSoft}, {Number: 3, WidthMax: 16, WidthMaxEnforcer: text.WrapSoft}, {Number: 4, Align: text.AlignRight}})
	t.SetStyle(rounded())
	return t
}

// plainTable is a table without lines.
func plainTable() table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	return t
}

// rounded is the style of tables.
func rounded() table.Style {
	style := table.StyleRounded
	style.Format.Header = text.FormatDefault
	return style
}

// summary returns one line.
func summary(r *check.Report) string {
	s := fmt.Sprintf("%d promises kept", r.Count(conformance.Kept))
	if n := len(r.Doubtful()); n > 0 {
		s += fmt.Sprintf(" (%d of them not in each trial)", n)
	}
	s += fmt.Sprintf(", %d broken, %d undecided", r.Count(conformance.Broken), r.Count(conformance.Undecided))
	if n := r.Count(conformance.Known) + r.Count(conformance.Unseen); n > 0 {
		s += fmt.Sprintf(", %d known deviations", n)
	}
	if n := r.Count(conformance.Skipped); n > 0 {
		s += fmt.Sprintf("; %d skipped", n)
		if !r.OfProgram {
			s += ": they would disturb a server in use, or this backend does not promise them"
		}
	}
	return s
}

// unfinished says how much of a check that was ended did not run.
func unfinished(r *check.Report) string {
	return fmt.Sprintf("ended early: %d of %d scenarios did not run", r.NotRun, r.NotRun+len(r.Results))
}

// wanting has the reason for skipping a scenario, by the field of the Harness that it needs and
// programs do not have.
var wanting = map[string]string{
	"Faults.Through":       "it needs --address",
	"Faults.ThroughClient": "it needs --address and the claim renew",
	"Faults.StopServer":    "it needs --server",
	"Faults.KillServer":    "it needs --server",
	"Faults.WipeServer":    "it needs --server with --server-forgets",
	"Faults.FailOver":      "the protocol for programs has no Faults.FailOver",
	"Faults.MoveClock":     "the protocol for programs has no Faults.MoveClock",
	"Faults.Revoke":        "the protocol for programs has no Faults.Revoke",
	"RW":                   "the protocol for programs has no RW",
	"Client":               "it needs the claim share",
}

// skipped returns how many scenarios were skipped for each reason.
func skipped(r *check.Report) []string {
	counts := map[string]int{}
	for _, v := range r.Results {
		if v.Outcome == conformance.Skipped {
			reason := strings.TrimPrefix(v.Seen, "skipped: ")
			_, field, _ := strings.Cut(reason, "the Harness has no ")
			counts[cmp.Or(wanting[field], reason)]++
		}
	}
	var lines []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("skipped   %d: %s", counts[reason], reason))
	}
	return lines
}

func writeText(w io.Writer, r *check.Report) error {
	lines := []string{fmt.Sprintf("%s, TTL %s, %.0f s", r.Backend, r.TTL, r.Seconds)}
	if r.Bounds != "" {
		lines = append(lines, r.Bounds)
	}
	lines = append(lines, guaranteeTable(r).Render())
	for _, warning := range r.Warnings {
		lines = append(lines, "warning   "+warning)
	}
	for _, v := range r.Notable() {
		lines = append(lines, line(v))
	}
	if r.OfProgram {
		lines = append(lines, skipped(r)...)
	}
	lines = append(lines, summary(r))
	if r.NotRun > 0 {
		lines = append(lines, unfinished(r))
	}
	if r.Left != "" {
		lines = append(lines, r.Left)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, fold(line)); err != nil {
			return err
		}
	}
	return nil
}

func writeJUnit(w io.Writer, r *check.Report) error {
	suite := junit.Testsuite{
		Name: "locker check " + r.Backend, Time: seconds(r.Seconds), Timestamp: r.Began.UTC().Format(time.RFC3339),
	}
	for _, warning := range r.Warnings { // JUnit has no other place for them
		suite.AddProperty("warning", inXML(warning))
	}
	for _, v := range r.Results {
		c := junit.Testcase{Classname: "locker.check", Name: v.Scenario, Time: seconds(v.Seconds)}
		switch v.Outcome {
		case conformance.Skipped:
			c.Skipped = &junit.Result{Message: inXML(v.Seen)}
		case conformance.Broken:
			c.Failure = &junit.Result{Message: v.Promise, Data: inXML(v.Seen)}
		case conformance.Undecided:
			c.Error = &junit.Result{Message: inXML(v.Seen)}
		case conformance.Stale:
			c.Failure = &junit.Result{Message: v.Promise, Data: inXML(line(v))}
		case conformance.Known, conformance.Unseen:
			c.SystemOut = &junit.Output{Data: inXML(line(v))}
		case conformance.Kept:
			if v.Doubtful() {
				c.SystemOut = &junit.Output{Data: inXML(line(v))}
			}
		}
		suite.AddTestcase(c)
	}
	var all junit.Testsuites
	all.AddSuite(suite)
	return all.WriteXML(w)
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }

// inXML returns s without characters that XML forbids, even in CDATA. encoding/xml does that only
// for attributes, and splits "]]>".
func inXML(s string) string {
	return strings.Map(func(r rune) rune { // which has U+FFFD for what is not UTF-8
		if r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == '\ufffe' || r == '\uffff' {
			return '\ufffd'
		}
		return r
	}, s)
}
