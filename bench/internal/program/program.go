// Package program is what the programs that measure have in common.
package program

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-locker/locker/bench/internal/chart"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/report"
)

// Run is a program, but for the process.
type Run = func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Main runs a program, until it has ended or is interrupted.
func Main(name string, run Run) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Options are those that all have.
type Options struct {
	Libraries contend.Libraries
	JSON      string
	Charts    string
	Quiet     bool
}

// parse adds the flags of Options to f, and parses args.
func (o *Options) parse(f *flag.FlagSet, known contend.Libraries, args []string) error {
	names := f.String("libraries", known.Names(), "which to measure")
	f.StringVar(&o.JSON, "json", "", "file for the raw figures of every round")
	f.StringVar(&o.Charts, "charts", "", "directory for charts of them, as SVG")
	f.BoolVar(&o.Quiet, "quiet", false, "do not say what is being measured")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var err error
	o.Libraries, err = known.Named(*names)
	return err
}

// Program is one that measures some libraries.
type Program interface {
	Flags(f *flag.FlagSet) // adds its own to those of Options
	Check() error          // of what the flags say
	// Measure starts servers, which end with ctx, and says to progress what is being measured.
	Measure(ctx context.Context, progress io.Writer) (Results, error)

	Common() *Options // which it embeds
}

// Common returns o.
func (o *Options) Common() *Options { return o }

// Measuring returns the Run of a program, which is new for each.
func Measuring(name string, known contend.Libraries, fresh func() Program) Run {
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		p := fresh()
		if err := Parse(p, name, known, args, stderr); err != nil {
			return err
		}
		return p.Common().run(ctx, stdout, stderr, p.Measure)
	}
}

// Parse has a program know its arguments.
func Parse(p Program, name string, known contend.Libraries, args []string, stderr io.Writer) error {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(stderr)
	p.Flags(f)
	if err := p.Common().parse(f, known, args); err != nil {
		return err
	}
	return p.Check()
}

// Results are what was measured, to be printed, to be written as JSON, and to be drawn.
type Results interface {
	Print(b *strings.Builder)
	Charts() []chart.Chart
}

// run writes down what was measured.
func (o *Options) run(
	ctx context.Context, stdout, stderr io.Writer,
	measure func(ctx context.Context, progress io.Writer) (Results, error),
) error {
	if o.Quiet {
		stderr = io.Discard
	}
	results, err := measure(ctx, stderr)
	if err != nil {
		if ctx.Err() != nil { // which stopped the servers: whatever failed then did so because of that
			return context.Cause(ctx)
		}
		return err
	}
	if o.JSON != "" {
		if err := report.WriteJSON(o.JSON, results); err != nil {
			return err
		}
	}
	if o.Charts != "" {
		for _, c := range results.Charts() {
			if err := c.Save(o.Charts); err != nil {
				return err
			}
		}
	}
	var b strings.Builder
	results.Print(&b)
	_, err = io.WriteString(stdout, b.String())
	return err
}
