package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

const compareHelp = `Compare does locker check and locker bench to two or more servers, or to one,
and puts the outcome side by side: which guarantees each promises, what was
seen of them, scenario by scenario, and what a lock costs there.

It prints Markdown. With --html it also writes one page with charts, that needs
no network and nothing beside it. A check takes two to four minutes for each
server: --run examines less of it.

` + exitHelp

type compareOptions struct {
	check  checkOptions
	bench  benchOptions
	html   string
	output string
}

func newCompare() *cobra.Command {
	var o compareOptions
	c := &cobra.Command{
		Use:     "compare [flags] URL…",
		Short:   "Check and measure several servers, as Markdown and as a page with charts",
		Long:    compareHelp,
		Example: "  locker compare --html page.html redis://db1:6379 etcd://db1:2379 > compare.md",
		Args:    args(1, 0, "want one URL or more, as in: locker compare redis://localhost:6379 etcd://localhost:2379"),
		ValidArgsFunction: func(c *cobra.Command, _ []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return schemes(c, nil, part)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := errors.Join(format(o.output, "markdown", "json"), o.bench.valid()); err != nil {
				return err
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			comparison, err := o.compare(ctx, args)
			if err != nil {
				return firstError(context.Cause(ctx), err)
			}
			return firstError(o.write(comparison, os.Stdout), comparison.verdict())
		},
	}
	o.check.flags(c.Flags())
	o.bench.flags(c.Flags())
	c.Flags().StringVar(&o.html, "html", "", "file that the page is written to")
	c.Flags().StringVarP(&o.output, "output", "o", "markdown", "markdown or json")
	return c
}

// comparison is what several servers came to, in the order of the command line.
type comparison struct {
	Checks []*checkReport `json:"checks"`
	Bench  *benchReport   `json:"bench"`
}

// compare measures first: that fails early if a server is away.
func (o *compareOptions) compare(ctx context.Context, urls []string) (*comparison, error) {
	if _, err := o.check.scenarios(); err != nil {
		return nil, err
	}
	bench, err := o.bench.bench(ctx, urls)
	if err != nil {
		return nil, err
	}
	c := &comparison{Bench: bench}
	for i, arg := range urls {
		url, err := expandURL(arg)
		if err != nil {
			return nil, err
		}
		report, err := o.check.check(ctx, url)
		if _, isVerdict := errors.AsType[*statusError](err); err != nil && (!isVerdict || report == nil || ctx.Err() != nil) {
			return nil, fmt.Errorf("%s: %w", bench.Results[i].Backend, err)
		}
		if report.Left != "" {
			fmt.Fprintf(os.Stderr, "locker: %s: %s\n", report.Backend, report.Left)
		}
		report.Backend = bench.Results[i].Backend
		c.Checks = append(c.Checks, report)
	}
	return c, nil
}

// verdict is the first that is an error.
func (c *comparison) verdict() error {
	var first error
	for _, r := range c.Checks {
		first = firstError(first, r.verdict())
	}
	return first
}

func (o *compareOptions) write(c *comparison, w io.Writer) error {
	if o.html != "" {
		if err := c.writePage(o.html); err != nil {
			return &statusError{exitUsage, fmt.Errorf("--html: %w", err)}
		}
	}
	if o.output == "json" {
		return writeJSON(w, c)
	}
	return c.writeMarkdown(w)
}

// writePage puts the page in place when it is complete.
func (c *comparison) writePage(file string) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".locker-*.html")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // unless it was renamed
	if err := errors.Join(c.renderPage(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// day is when the comparison was made.
func (c *comparison) day() string { return c.Bench.Began.Format(time.RFC1123) }
