package pairs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/chart"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/stats"
	"github.com/go-locker/locker/bench/internal/wire"
)

// Apart is how many pairs goroutines do that share a client, each with a name of its own.
type Apart struct {
	Library    string       `json:"library"`
	Round      int          `json:"round"`
	Goroutines int          `json:"goroutines"`
	Pairs      int64        `json:"pairs"`
	Load       servers.Load `json:"load"`
	Errors     int64        `json:"errors"`
	Error      string       `json:"error,omitempty"`
}

// Rate is in pairs a second.
func (a *Apart) Rate() float64 { return float64(a.Pairs) / a.Load.Seconds }

func (a *Apart) each(total float64) float64 { return total / float64(max(a.Pairs, 1)) }

// Crowds is how they are measured: the libraries take turns in each round.
type Crowds struct {
	Rounds           int
	Goroutines       []int // one cell each
	WarmUp, Duration time.Duration
}

// Measure returns what each library came to in each round.
func (plan Crowds) Measure(
	ctx context.Context, libraries contend.Libraries, on *servers.Servers, progress io.Writer,
) ([]Apart, error) {
	var all []Apart
	for round := range plan.Rounds {
		for _, goroutines := range plan.Goroutines {
			for _, l := range libraries.Turn(round) {
				a := Apart{Library: l.Name, Round: round, Goroutines: goroutines}
				if err := plan.measure(ctx, on, l, &a); err != nil {
					return nil, fmt.Errorf("%s: %w", l.Name, err)
				}
				fmt.Fprintf(progress, "round %d of %d: %d goroutines, %s: %.0f pairs/s\n",
					round+1, plan.Rounds, goroutines, l.Name, a.Rate())
				all = append(all, a)
			}
		}
	}
	return all, nil
}

// hanging is after how long a pair that was begun within the measurement is given up, and is an
// error.
const hanging = 2 * time.Second

// crowd is the goroutines of one cell.
type crowd struct {
	measuring     atomic.Bool
	over          atomic.Bool
	pairs, errors atomic.Int64
	first         atomic.Pointer[string] // error
}

func (c *crowd) run(ctx context.Context, lock contend.LockFunc) {
	for !c.over.Load() && ctx.Err() == nil {
		_, _, err := Once(ctx, lock)
		switch {
		case err == nil && c.measuring.Load():
			c.pairs.Add(1)
		case err != nil:
			text := err.Error()
			c.first.CompareAndSwap(nil, &text)
			c.errors.Add(1)
			contend.Sleep(ctx, Settle)
		}
	}
}

func (plan Crowds) measure(ctx context.Context, on *servers.Servers, l contend.Library, a *Apart) error {
	sent := wire.NewTally()
	client, err := l.Connect(on.Addrs, sent)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var c crowd
	var wg sync.WaitGroup
	for i := range a.Goroutines {
		lock := client.Waiter(l.LockName("apart", a.Round, a.Goroutines, i))
		wg.Go(func() { c.run(ctx, lock) })
	}
	err = plan.window(ctx, on, sent, &c, a)
	c.over.Store(true)
	defer time.AfterFunc(hanging, cancel).Stop()
	if err := errors.Join(err, contend.AwaitAll(&wg)); err != nil {
		return err
	}
	a.Pairs, a.Errors = c.pairs.Load(), c.errors.Load()
	if text := c.first.Load(); text != nil {
		a.Error = *text
	}
	return nil
}

func (plan Crowds) window(ctx context.Context, on *servers.Servers, sent *wire.Tally, c *crowd, a *Apart) error {
	if !contend.Sleep(ctx, plan.WarmUp) {
		return context.Cause(ctx)
	}
	var err error
	a.Load, err = on.During(ctx, sent, func() error {
		c.measuring.Store(true)
		passed := contend.Sleep(ctx, plan.Duration)
		c.measuring.Store(false)
		if !passed {
			return context.Cause(ctx)
		}
		return nil
	})
	return err
}

// ApartTable has a row for each library and number of goroutines, over all rounds. Ratios are to
// the baseline's in the same round, with as many goroutines.
func ApartTable(all []Apart, baseline string) string {
	t := report.NewTable("goroutines", "library", "pairs/s", "ratio", "sent", "server µs", "allocations", "client µs", "errors")
	for _, cell := range stats.Grouped(all, func(a Apart) string { return fmt.Sprint(a.Goroutines) }) {
		for _, group := range stats.Grouped(cell, func(a Apart) string { return a.Library }) {
			each := func(f func(l *servers.Load) float64) string {
				return stats.Figure(stats.Across(group, func(a *Apart) float64 { return a.each(f(&a.Load)) }).Median, 1)
			}
			t.AppendRow(table.Row{
				group[0].Goroutines, group[0].Library,
				stats.Across(group, (*Apart).Rate).Text(0),
				stats.Ratios(group, cell, baseline, func(a *Apart) (string, int) { return a.Library, a.Round }, (*Apart).Rate),
				each((*servers.Load).Requests), each((*servers.Load).ServerUs),
				each((*servers.Load).Allocations), each((*servers.Load).ClientUs),
				stats.Sum(group, func(a *Apart) int64 { return a.Errors }),
			})
		}
	}
	return t.RenderMarkdown()
}

// ApartCharts are of the same; files begin with prefix.
func ApartCharts(all []Apart, prefix string) []chart.Chart {
	if len(all) == 0 {
		return nil
	}
	return []chart.Chart{{
		File: prefix + "-apart", Title: "Each its own name", X: "goroutines that share a client", Y: "pairs of Lock and Unlock a second",
		Series: chart.Of(all, func(a *Apart) string { return a.Library },
			func(a *Apart) float64 { return float64(a.Goroutines) }, (*Apart).Rate),
	}}
}
