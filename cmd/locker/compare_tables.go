package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/conformance"
)

// cell is one of a matrix.
type cell struct {
	Mark  string // of the outcome, for people who do not see colours
	Class string // of the outcome
	Text  string // details
}

// matrixRow has a cell for each server.
type matrixRow struct {
	Name, Promise string
	Cells         []cell
}

var marks = map[string]string{
	"held": "✓", "kept": "✓", "known": "✗", "unseen": "✓", "broken": "✗", "undecided": "?", "not tried": "–", "skipped": "–",
}

// guarantees returns the rows of the matrix of guarantees.
func (c *comparison) guarantees() []matrixRow {
	var rows []matrixRow
	for _, g := range allGuarantees {
		rows = append(rows, matrixRow{Name: string(g), Promise: guaranteeMeans[g]})
	}
	for _, report := range c.Checks {
		for i, g := range report.guarantees() {
			rows[i].Cells = append(rows[i].Cells, cell{marks[g.Seen], g.Seen, "promised: " + g.Promised + g.doubts()})
		}
	}
	return rows
}

// scenarios returns a row for each scenario that ran on at least one server.
func (c *comparison) scenarios() []matrixRow {
	var rows []matrixRow
	if len(c.Checks) == 0 {
		return nil
	}
	longest := slices.MaxFunc(c.Checks, func(a, b *checkReport) int { return len(a.Results) - len(b.Results) })
	for _, first := range longest.Results { // others became unreachable, or were interrupted
		row := matrixRow{Name: first.Scenario, Promise: first.Promise}
		tried := false
		for _, report := range c.Checks {
			i := slices.IndexFunc(report.Results, func(v verdict) bool { return v.Scenario == first.Scenario })
			if i < 0 { // the server became unreachable before that
				row.Cells = append(row.Cells, cell{marks["undecided"], "undecided", ""})
				continue
			}
			v := report.Results[i]
			tried = tried || v.Outcome != conformance.Skipped
			row.Cells = append(row.Cells, v.cell())
		}
		if tried {
			rows = append(rows, row)
		}
	}
	return rows
}

// cell returns the outcome, and in how many trials the promise was kept if not in each.
func (v verdict) cell() cell {
	one := cell{Mark: marks[string(v.Outcome)], Class: string(v.Outcome)}
	if v.doubtful() {
		one.Text = v.Share()
	}
	return one
}

func (c *comparison) backends() []string {
	var all []string
	for _, r := range c.Checks {
		all = append(all, r.Backend)
	}
	return all
}

func (c *comparison) matrix(title string, rows []matrixRow, show func(cell) string) string {
	t := table.NewWriter()
	header := table.Row{title}
	for _, b := range c.backends() {
		header = append(header, b)
	}
	t.AppendHeader(header)
	for _, r := range rows {
		row := table.Row{r.Name}
		for _, one := range r.Cells {
			row = append(row, show(one))
		}
		t.AppendRow(row)
	}
	return t.RenderMarkdown()
}

func (c *comparison) writeMarkdown(w io.Writer) error {
	_, err := fmt.Fprintf(w, "# Locks compared\n\nBy locker compare, %s.\n\n## Guarantees\n\n%s\n\n## Cost\n\n%s\n\n%s\n\n## Scenarios\n\n%s\n",
		c.day(),
		c.matrix("Guarantee", c.guarantees(), func(one cell) string { return one.Class + " (" + one.Text + ")" }),
		c.Bench.table().RenderMarkdown(), c.Bench.caption(),
		c.matrix("Scenario", c.scenarios(), func(one cell) string { return strings.TrimSuffix(one.Class+", "+one.Text, ", ") }))
	for _, r := range c.Checks {
		fmt.Fprintf(w, "\n%s: %s.\n", r.Backend, r.Summary())
		if r.NotRun > 0 {
			fmt.Fprintf(w, "\n- **%s**\n", r.Unfinished())
		}
		for _, warning := range r.Warnings {
			fmt.Fprintf(w, "\n- **warning**: %s\n", warning)
		}
		for _, v := range r.Doubtful() {
			fmt.Fprintf(w, "\n- **kept, %s**: %s\n\n  %s\n\n  ```\n  %s\n  ```\n", v.Share(), v.Scenario, v.Promise, indent(v.Seen, "  "))
		}
		for _, v := range r.Failures() {
			fmt.Fprintf(w, "\n- **%s**: %s\n\n  %s\n\n  ```\n  %s\n  ```\n", v.Outcome, v.Scenario, v.Promise, indent(v.Seen, "  "))
		}
	}
	return err
}
