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

const compareHelp = `Compare runs locker check and locker bench on one or more servers, and shows
the results side by side: the guarantees that each server promises, whether
they were kept, the result of each scenario, and what a lock costs.

It prints Markdown. With --html it also writes a page, which needs no network
and no other file. A check takes one to four minutes for each
server: --run runs fewer scenarios.

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
		Short:   "Check and measure several servers: Markdown, and a page",
		Long:    compareHelp,
		Example: "  locker compare --html page.html redis://db1:6379 etcd://db1:2379 > compare.md",
		Args:    args(1, 0, "want at least one URL, as in: locker compare redis://localhost:6379 etcd://localhost:2379"),
		ValidArgsFunction: func(c *cobra.Command, _ []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return schemes(c, nil, part)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := errors.Join(format(o.output, "markdown", "json"), o.bench.valid()); err != nil {
				return err
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			page, err := createPage(o.html)
			if err != nil {
				return err
			}
			defer page.discard()
			comparison, err := o.compare(ctx, args)
			if comparison == nil {
				return firstError(context.Cause(ctx), err)
			}
			written := o.write(comparison, page, os.Stdout)
			return firstError(context.Cause(ctx), written, err, comparison.verdict())
		},
	}
	o.check.flags(c.Flags())
	o.bench.flags(c.Flags())
	c.Flags().StringVar(&o.html, "html", "", "write the page to this file")
	c.Flags().StringVarP(&o.output, "output", "o", "markdown", "markdown or json")
	return c
}

// comparison has the results of several servers, in the order of the command line.
type comparison struct {
	Checks []*checkReport `json:"checks"`
	Bench  *benchReport   `json:"bench"`
}

// compare measures first: that fails early if a server is unreachable. If a server becomes unreachable later, or after an
// interruption, it returns the results until then.
func (o *compareOptions) compare(ctx context.Context, urls []string) (*comparison, error) {
	o.bench.prefix = o.check.prefix
	if _, err := o.check.scenarios(); err != nil {
		return nil, err
	}
	bench, err := o.bench.bench(ctx, urls)
	if err != nil {
		return nil, err
	}
	c := &comparison{Bench: bench}
	var failed error
	for i, arg := range urls {
		url, err := expandURL(arg)
		if err != nil {
			return nil, err
		}
		report, err := o.check.check(ctx, url)
		if _, isVerdict := errors.AsType[*statusError](err); err != nil && (!isVerdict || report == nil) {
			err = fmt.Errorf("%s: %w", bench.Results[i].Backend, err)
			failed = &statusError{code: exitUnreachable, err: errors.Join(failed, err)}
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
func (c *comparison) verdict() error {
	var first error
	for _, r := range c.Checks {
		first = firstError(first, r.verdict())
	}
	return first
}

func (o *compareOptions) write(c *comparison, page *pageFile, w io.Writer) error {
	paged := page.write(c)
	if o.output == "json" {
		return errors.Join(writeJSON(w, c), paged)
	}
	return errors.Join(c.writeMarkdown(w), paged)
}

// pageFile is the file of the page, or nil without --html.
type pageFile struct {
	name string
	f    *os.File // beside it, until it is complete
}

// createPage fails if the page cannot be written, before any work is done.
func createPage(name string) (*pageFile, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".locker-*.html")
	if err != nil {
		return nil, usagef("--html: cannot create a file in that folder: %w", reason(err))
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		(&pageFile{name, f}).discard()
		return nil, usagef("--html: the path is a directory")
	}
	return &pageFile{name, f}, nil
}

func (p *pageFile) discard() {
	if p != nil {
		_ = p.f.Close()
		_ = os.Remove(p.f.Name()) // unless it was renamed
	}
}

// write moves the page into place when it is complete.
func (p *pageFile) write(c *comparison) error {
	if p == nil {
		return nil
	}
	if err := errors.Join(c.renderPage(p.f), p.f.Chmod(0o644), p.f.Close()); err != nil {
		return usagef("--html: %w", reason(err))
	}
	if err := os.Rename(p.f.Name(), p.name); err != nil {
		return usagef("--html: %w", reason(err))
	}
	return nil
}

// day returns when the comparison was made.
func (c *comparison) day() string { return c.Bench.Began.Format(time.RFC1123) }
