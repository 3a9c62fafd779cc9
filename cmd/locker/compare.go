package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/go-locker/locker/cmd/locker/internal/check"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/conformance"
)

const compareHelp = `Compare runs locker check and locker bench on one or more servers, and shows
the results side by side, as Markdown: the guarantees that each server promises,
whether they were kept, the result of each scenario, and what a lock costs. A
check takes one to four minutes for each server: --run runs fewer scenarios.

` + exitHelp

type compareOptions struct {
	check  checkOptions
	bench  benchOptions
	output string
}

func newCompare() *cobra.Command {
	var o compareOptions
	c := &cobra.Command{
		Use:               "compare [flags] URL…",
		Short:             "Check and measure several servers, side by side",
		Long:              compareHelp,
		Example:           "  locker compare redis://db1:6379 etcd://db1:2379 > compare.md",
		Args:              args(1, 0, "want at least one URL, as in: locker compare redis://localhost:6379 etcd://localhost:2379"),
		ValidArgsFunction: schemesAlone,
		RunE: func(c *cobra.Command, args []string) error {
			if err := cmp.Or(format(o.output, "markdown", "json"), o.bench.valid()); err != nil {
				return err
			}
			return interruptible(c, func(ctx context.Context) error {
				comparison, err := o.compare(ctx, args)
				if comparison == nil {
					return err
				}
				return cmp.Or(comparison.write(os.Stdout, o.output), err, comparison.verdict(o.check.strict))
			})
		},
	}
	o.check.flags(c.Flags())
	o.bench.flags(c.Flags())
	c.Flags().StringVarP(&o.output, "output", "o", "markdown", "markdown or json")
	return c
}

// comparison has the results of several servers, in the order of the command line.
type comparison struct {
	Checks []*check.Report `json:"checks"`
	Bench  *benchReport    `json:"bench"`
}

// compare measures first: that fails early if a server is unreachable. If a server becomes unreachable later, or after an
// interruption, it returns the results until then.
func (o *compareOptions) compare(ctx context.Context, urls []string) (*comparison, error) {
	o.bench.prefix = o.check.Prefix
	if _, err := o.check.Scenarios(); err != nil {
		return nil, err
	}
	bench, err := o.bench.bench(ctx, urls)
	if err != nil {
		return nil, err
	}
	c := &comparison{Bench: bench}
	var failed error
	for i, arg := range urls {
		report, err := o.check.check(ctx, arg)
		if _, isOutcome := errors.AsType[*outcome.Error](err); err != nil && (!isOutcome || report == nil) {
			err = fmt.Errorf("%s: %w", bench.Results[i].Backend, err)
			failed = &outcome.Error{Code: outcome.Unreachable, Err: errors.Join(failed, err)}
		}
		if report == nil {
			continue
		}
		if report.Left != "" {
			fmt.Fprintf(os.Stderr, "locker: %s: %s\n", report.Backend, report.Left)
		}
		report.Backend = bench.Results[i].Backend
		c.Checks = append(c.Checks, report)
		if ctx.Err() != nil {
			break
		}
	}
	return c, failed
}

// verdict returns the first verdict that is an error.
func (c *comparison) verdict(strict bool) error {
	var first error
	for _, r := range c.Checks {
		first = cmp.Or(first, r.Verdict(strict))
	}
	return first
}

// guarantees returns a row for each guarantee.
func (c *comparison) guarantees() (rows []table.Row) {
	for _, report := range c.Checks {
		for i, g := range report.Seen() {
			if i == len(rows) {
				rows = append(rows, table.Row{g.Guarantee})
			}
			rows[i] = append(rows[i], fmt.Sprintf("%s (promised: %s%s)", g.Seen, g.Promised, doubts(g)))
		}
	}
	return rows
}

// scenarios returns a row for each scenario that ran on at least one server.
func (c *comparison) scenarios() (rows []table.Row) {
	for _, s := range conformance.Scenarios() {
		row, tried := table.Row{s.Name}, false
		for _, report := range c.Checks {
			text := string(conformance.Undecided) // unless the server became unreachable before that
			for _, v := range report.Results {
				if v.Scenario == s.Name {
					tried = tried || v.Outcome != conformance.Skipped
					text = verdict(v)
				}
			}
			row = append(row, text)
		}
		if tried {
			rows = append(rows, row)
		}
	}
	return rows
}

// verdict returns the outcome of a scenario, and in how many trials if not in each.
func verdict(v check.Verdict) string {
	if v.Doubtful() {
		return string(v.Outcome) + ", " + v.Share()
	}
	return string(v.Outcome)
}

func (c *comparison) matrix(title string, rows []table.Row) string {
	t := table.NewWriter()
	header := table.Row{title}
	for _, r := range c.Checks {
		header = append(header, r.Backend)
	}
	t.AppendHeader(header)
	t.AppendRows(rows)
	return t.RenderMarkdown()
}

func (c *comparison) write(w io.Writer, format string) error {
	if format == "json" {
		return writeJSON(w, c)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Locks compared\n\nBy locker compare, %s.\n\n## Guarantees\n\n%s\n\n## Cost\n\n%s\n\n%s\n\n## Scenarios\n\n%s\n",
		c.Bench.Began.Format(time.RFC1123), c.matrix("Guarantee", c.guarantees()),
		c.Bench.table().RenderMarkdown(), c.Bench.caption(), c.matrix("Scenario", c.scenarios()))
	for _, r := range c.Checks {
		fmt.Fprintf(&b, "\n%s: %s.\n", r.Backend, summary(r))
		if r.NotRun > 0 {
			fmt.Fprintf(&b, "\n- **%s**\n", unfinished(r))
		}
		for _, warning := range r.Warnings {
			fmt.Fprintf(&b, "\n- **warning**: %s\n", warning)
		}
		for _, v := range r.Notable() {
			fmt.Fprintf(&b, "\n- **%s**: %s\n\n  %s\n\n  ```\n  %s\n  ```\n", verdict(v), v.Scenario, v.Promise, indent(v.Seen, "  "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
