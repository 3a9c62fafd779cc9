package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const benchHelp = `Bench measures what locks cost at one or more servers, side by side:

  pair        Lock and Unlock of a lock that is free, by one goroutine
  hand-over   from the Unlock of one client to the return of Lock at another
              that waits
  throughput  pairs a second that --goroutines goroutines make, which share a
              client, each with a lock of its own

For pair and hand-over it shows the median and the 99th percentile.

The servers take turns in each round, so that other load affects all of them in
the same way. Absolute times differ between machines, networks and hours:
compare only results of one run. By default a run takes some seconds for each
server.

The locks have a prefix of their own, and are deleted afterwards, as by locker
check. If the user may only use keys with a certain prefix, give it with
--prefix. Then each name has a random part.

` + exitHelp

type benchOptions struct {
	rounds, pairs, goroutines int
	duration                  time.Duration
	prefix                    string
	output                    string
}

func (o *benchOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&o.rounds, "rounds", 3, "number of rounds, in which the servers take turns")
	f.IntVar(&o.pairs, "pairs", 100, "pairs, and hand-overs, in a round")
	f.IntVar(&o.goroutines, "goroutines", 16, "goroutines for throughput")
	f.DurationVar(&o.duration, "duration", time.Second, "duration of the throughput measurement; limit for the hand-overs of a round")
}

func (o *benchOptions) valid() error {
	for name, n := range map[string]int{"--rounds": o.rounds, "--pairs": o.pairs, "--goroutines": o.goroutines} {
		if n < 1 || n > 100_000 {
			return usagef("%s %d: must be from 1 to 100000", name, n)
		}
	}
	if o.duration <= 0 || o.duration > time.Hour {
		return usagef("--duration %v: must be more than 0, and no more than an hour", o.duration)
	}
	return nil
}

func newBench() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use:     "bench [flags] URL…",
		Short:   "Measure what locks cost, at several servers side by side",
		Long:    benchHelp,
		Example: "  locker bench redis://localhost:6379 etcd://localhost:2379 mem://here\n  locker bench --rounds 10 --output json redis://db1:6379 > bench.json",
		Args:    args(1, 0, "want at least one URL, as in: locker bench redis://localhost:6379 etcd://localhost:2379"),
		ValidArgsFunction: func(c *cobra.Command, _ []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return schemes(c, nil, part)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := errors.Join(format(o.output, "text", "json"), o.valid()); err != nil {
				return err
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			report, err := o.bench(ctx, args)
			if err != nil {
				return firstError(context.Cause(ctx), err)
			}
			return report.write(os.Stdout, o.output)
		},
	}
	o.flags(c.Flags())
	c.Flags().StringVar(&o.prefix, "prefix", "", "prefix of the names (default: a new one)")
	c.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	return c
}

// bench measures the servers in turns. It stops at the first that fails.
func (o *benchOptions) bench(ctx context.Context, urls []string) (*benchReport, error) {
	subjects, err := newSubjects(ctx, urls, o.prefix)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range subjects {
			if left := s.cleanUp(); left != "" {
				fmt.Fprintf(os.Stderr, "locker: %s: %s\n", s.label, left)
			}
		}
	}()
	report := &benchReport{
		Began: time.Now(), Rounds: o.rounds, PairsPerRound: o.pairs, Goroutines: o.goroutines, DurationSeconds: o.duration.Seconds(),
	}
	parts := []struct {
		name    string
		measure func(*benchOptions, context.Context, *subject) error
	}{{"pairs", (*benchOptions).measurePairs}, {"hand-over", (*benchOptions).measureHandOvers}, {"throughput", (*benchOptions).measureThroughput}}
	bar := newProgress("bench", o.rounds*len(subjects)*len(parts))
	defer bar.done()
	for range o.rounds {
		for _, part := range parts {
			for _, s := range subjects {
				bar.at(part.name + " " + s.label)
				if err := part.measure(o, ctx, s); err != nil {
					return nil, fmt.Errorf("%s: %s: %w", s.label, part.name, err)
				}
				bar.next()
			}
		}
	}
	for _, s := range subjects {
		report.Results = append(report.Results, s.result())
	}
	return report, nil
}
