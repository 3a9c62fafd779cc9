package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/ground"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/target"
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
			return outcome.Usagef("%s %d: must be from 1 to 100000", name, n)
		}
	}
	if o.duration <= 0 || o.duration > time.Hour {
		return outcome.Usagef("--duration %v: must be more than 0, and no more than an hour", o.duration)
	}
	return nil
}

func newBench() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use:   "bench [flags] URL…",
		Short: "Measure what locks cost, at several servers side by side",
		Long:  benchHelp,
		Example: "  locker bench redis://localhost:6379 etcd://localhost:2379 mem://here\n" +
			"  locker bench --rounds 10 --output json redis://db1:6379 > bench.json",
		Args:              args(1, 0, "want at least one URL, as in: locker bench redis://localhost:6379 etcd://localhost:2379"),
		ValidArgsFunction: schemesAlone,
		RunE: func(c *cobra.Command, args []string) error {
			if err := cmp.Or(format(o.output, "text", "json"), o.valid()); err != nil {
				return err
			}
			return interruptible(c, func(ctx context.Context) error {
				report, err := o.bench(ctx, args)
				if err != nil {
					return err
				}
				return report.write(os.Stdout, o.output)
			})
		},
	}
	o.flags(c.Flags())
	c.Flags().StringVar(&o.prefix, "prefix", "", "prefix of the names (default: a new one)")
	c.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	return c
}

// bench measures the servers in turns. It stops at the first that fails.
func (o *benchOptions) bench(ctx context.Context, urls []string) (_ *benchReport, err error) {
	if err := checkText("--prefix", o.prefix, "--prefix PREFIX URL…"); err != nil {
		return nil, err
	}
	over := withoutReader()
	defer over()
	subjects, err := newSubjects(ctx, urls, o.prefix)
	if err != nil {
		return nil, err
	}
	defer func() {
		var all sync.WaitGroup
		for _, s := range subjects {
			all.Go(func() {
				if left := s.CleanUp(err); left != "" && len(s.pairs) > 0 { // it was reached
					fmt.Fprintf(os.Stderr, "locker: %s: %s\n", s.label, left)
				}
			})
		}
		all.Wait()
	}()
	report := &benchReport{
		Began: time.Now(), Rounds: o.rounds, PairsPerRound: o.pairs, Goroutines: o.goroutines, DurationSeconds: o.duration.Seconds(),
	}
	parts := []struct {
		name    string
		measure func(*benchOptions, context.Context, *subject, *locker.Client) error
	}{{"pairs", (*benchOptions).measurePairs}, {"hand-over", (*benchOptions).measureHandOvers}, {"throughput", (*benchOptions).measureThroughput}}
	bar := newProgress("bench", o.rounds*len(subjects)*len(parts))
	defer bar.done()
	for range o.rounds {
		for _, part := range parts {
			for _, s := range subjects {
				bar.at(part.name + " " + s.label)
				if err := s.connected(ctx, func(c *locker.Client) error { return part.measure(o, ctx, s, c) }); err != nil {
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

// benchReport is the result of a bench.
type benchReport struct {
	Began           time.Time     `json:"began"`
	Rounds          int           `json:"rounds"`
	PairsPerRound   int           `json:"pairs_per_round"`
	Goroutines      int           `json:"goroutines"`
	DurationSeconds float64       `json:"duration_seconds"`
	Results         []benchResult `json:"results"`
}

// benchResult is the result of one server.
type benchResult struct {
	Backend        string    `json:"backend"`
	Pair           latency   `json:"pair"`
	HandOver       latency   `json:"hand_over"`
	PairsPerSecond []float64 `json:"pairs_per_second"` // of each round
}

// latency sums up many measurements.
type latency struct {
	Samples int     `json:"samples"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

func (s *subject) result() benchResult {
	return benchResult{s.label, latencyOf(s.pairs), latencyOf(s.handOvers), s.perSecond}
}

func latencyOf(all []time.Duration) latency {
	if len(all) == 0 {
		return latency{}
	}
	sorted := slices.Sorted(slices.Values(all))
	rank := func(percent int) float64 { // the nearest rank: a value that was measured
		return float64(sorted[(len(sorted)*percent+99)/100-1].Nanoseconds()) / 1000
	}
	return latency{len(sorted), rank(50), rank(99)}
}

// throughput returns the median of the rounds.
func (r benchResult) throughput() float64 {
	if len(r.PairsPerSecond) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.PairsPerSecond))
	return sorted[len(sorted)/2]
}

func (r *benchReport) write(w io.Writer, format string) error {
	if format == "json" {
		return writeJSON(w, r)
	}
	fmt.Fprintln(w, r.table().Render())
	_, err := fmt.Fprintln(w, r.caption())
	return err
}

func (r *benchReport) caption() string {
	return fmt.Sprintf("%d rounds, each with %d pairs, as many hand-overs within %v, and %v of throughput with %d goroutines.",
		r.Rounds, r.PairsPerRound, duration(r.DurationSeconds), duration(r.DurationSeconds), r.Goroutines)
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func (r *benchReport) table() table.Writer {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"Backend", "Pair p50", "p99", "Hand-over p50", "p99", "Pairs/s"})
	for _, b := range r.Results {
		t.AppendRow(table.Row{b.Backend, b.Pair.p50(), b.Pair.p99(), b.HandOver.p50(), b.HandOver.p99(), fmt.Sprintf("%.0f", b.throughput())})
	}
	var right []table.ColumnConfig
	for column := 2; column <= 6; column++ {
		right = append(right, table.ColumnConfig{Number: column, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	t.SetStyle(rounded())
	return t
}

func (l latency) p50() string { return l.show(l.P50) }
func (l latency) p99() string { return l.show(l.P99) }

// show prints three digits.
func (l latency) show(us float64) string {
	switch {
	case l.Samples == 0:
		return "–"
	case us < 1000:
		return fmt.Sprintf("%.3g µs", us)
	case us < 1e6:
		return fmt.Sprintf("%.3g ms", us/1000)
	default:
		return fmt.Sprintf("%.3g s", us/1e6)
	}
}

// subject is a server that is measured, and its measurements so far.
type subject struct {
	*ground.Ground
	label     string
	pairs     []time.Duration
	handOvers []time.Duration
	perSecond []float64 // of each round
}

// newSubjects numbers servers whose labels are the same without secrets and parameters.
func newSubjects(ctx context.Context, urls []string, prefix string) ([]*subject, error) {
	var all []*subject
	count := map[string]int{}
	for _, arg := range urls {
		url, err := target.Expand(arg)
		if err != nil {
			return nil, err
		}
		if err := target.Refuse(ctx, url); err != nil {
			return nil, err
		}
		s := &subject{Ground: ground.New(url, prefix, "bench")}
		s.label = s.String()
		if count[s.label]++; count[s.label] > 1 {
			s.label = fmt.Sprintf("%s (%d)", s.label, count[s.label])
		}
		all = append(all, s)
	}
	for _, s := range all { // which nothing ends before somebody cleans up
		s.Prepare(ctx)
	}
	return all, nil
}

// connected calls measure with a client whose connections are made, so that these are not measured.
func (s *subject) connected(ctx context.Context, measure func(*locker.Client) error) error {
	c, err := s.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := pair(ctx, c.Mutex(s.Name("warm-up"))); err != nil {
		return err
	}
	return measure(c)
}

// bound is how long one lock may take: beyond that it is an outage.
const bound = 30 * time.Second

func pair(ctx context.Context, m *locker.Mutex) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if err := m.Lock(ctx); err != nil {
		return err
	}
	return m.Unlock(context.WithoutCancel(ctx))
}

func (o *benchOptions) measurePairs(ctx context.Context, s *subject, c *locker.Client) error {
	m := c.Mutex(s.Name("pairs"))
	for range o.pairs {
		began := time.Now()
		if err := pair(ctx, m); err != nil {
			return err
		}
		s.pairs = append(s.pairs, time.Since(began))
	}
	return nil
}

// settle is how long a hold lasts before a hand-over: long enough for the other client to join the
// queue.
const settle = 2 * time.Millisecond

// measureHandOvers has two clients wait for each other.
func (o *benchOptions) measureHandOvers(ctx context.Context, s *subject, c *locker.Client) error {
	var (
		mu       sync.Mutex // for the race detector: the measured lock protects this
		holder   = -1
		released time.Time
		count    atomic.Int64
	)
	enough := time.Now().Add(o.duration)
	turns := func(ctx context.Context, me int, m *locker.Mutex) error {
		for int(count.Load()) < o.pairs && (count.Load() < 2 || time.Now().Before(enough)) {
			bounded, cancel := context.WithTimeout(ctx, bound)
			err := m.Lock(bounded)
			cancel()
			if err != nil {
				return err
			}
			got := time.Now()
			mu.Lock()
			if holder == 1-me { // nobody waits who takes it twice in a row
				s.handOvers = append(s.handOvers, got.Sub(released))
				count.Add(1)
			}
			mu.Unlock()
			time.Sleep(settle)
			mu.Lock()
			holder, released = me, time.Now()
			mu.Unlock()
			if err := m.Unlock(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
		return nil
	}
	name := s.Name("hand-over")
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return turns(ctx, 0, c.Mutex(name)) })
	both.Go(func() error {
		return s.connected(ctx, func(c *locker.Client) error { return turns(ctx, 1, c.Mutex(name)) })
	})
	return both.Wait()
}

func (o *benchOptions) measureThroughput(ctx context.Context, s *subject, c *locker.Client) error {
	var done atomic.Int64
	began := time.Now()
	all, ctx := errgroup.WithContext(ctx)
	for i := range o.goroutines {
		all.Go(func() error {
			m := c.Mutex(s.Name(fmt.Sprintf("throughput-%d", i)))
			for time.Since(began) < o.duration {
				if err := pair(ctx, m); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	s.perSecond = append(s.perSecond, float64(done.Load())/time.Since(began).Seconds())
	return nil
}
