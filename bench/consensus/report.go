package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/chart"
	"github.com/go-locker/locker/bench/internal/kills"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/stats"
)

// Results are the raw figures of a run.
type Results struct {
	report.Setting
	Servers int     `json:"servers"` // of each cluster
	HoldMs  float64 `json:"holdMs"`
	Seconds float64 `json:"secondsPerCell"`

	Pairs     []Pairs     `json:"pairs"`
	Contended []Contended `json:"contended"`

	Kills []kills.Kill `json:"kills"`
}

func newResults(o options) *Results {
	return &Results{
		Setting: o.Libraries.Setting(""), Servers: o.servers,
		HoldMs: stats.Milliseconds(o.hold), Seconds: o.duration.Seconds(),
	}
}

// add notes that a system is measured too.
func (r *Results) add(server string) {
	if r.Server != "" {
		r.Server += ", "
	}
	r.Server += server
}

// Charts are of who waits.
func (r *Results) Charts() []chart.Chart {
	if len(r.Contended) == 0 {
		return nil
	}
	lines := func(y func(c *Contended) float64) []chart.Series {
		return chart.Of(r.Contended, func(c *Contended) string { return c.Library },
			func(c *Contended) float64 { return float64(c.Waiters) }, y)
	}
	return []chart.Chart{
		{
			File: fmt.Sprintf("consensus-%d-acquisitions", r.Servers), Title: "One name", X: "waiters",
			Y: "acquisitions a second", Series: lines((*Contended).rate),
		},
		{
			File: fmt.Sprintf("consensus-%d-requests", r.Servers), Title: "One name", X: "waiters",
			Y: "requests for an acquisition", LogY: true,
			Series: lines(func(c *Contended) float64 { return c.Each(c.Load.requests()) }),
		},
	}
}

// Print writes tables.
func (r *Results) Print(w io.Writer) error {
	var b strings.Builder
	r.Setting.Print(&b)
	if len(r.Pairs) > 0 {
		r.printPairs(&b)
	}
	if len(r.Contended) > 0 {
		r.printContended(&b)
	}
	if len(r.Kills) > 0 {
		kills.Print(&b, r.Kills)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// systemOf is that of a library.
func systemOf(library string) system {
	for _, s := range systems {
		if strings.HasPrefix(library, s.name+" ") {
			return s
		}
	}
	return system{}
}

func (r *Results) printPairs(b *strings.Builder) {
	fmt.Fprintf(b, `
## Nobody else

Lock and Unlock of one goroutine, each cluster of %d, in µs. Ratio: of the p50 of both to that of the same system's
"bare" in the same round. All that follows is for a pair. Requests: messages that the client sent, but for what
keeps sessions alive; round trips: how often one was sent while no answer was due; bytes: sent and received, with
all that HTTP/2 adds; then what this process allocated, the goroutines that it started, and its processor time.
Median (lowest–highest) of the rounds.

`, r.Servers)
	t := report.NewTable("library", "p50", "p90", "Lock p50", "Unlock p50", "ratio", "requests", "round trips",
		"bytes", "allocations", "kB", "goroutines", "client µs", "samples")
	for _, group := range stats.Grouped(r.Pairs, func(p Pairs) string { return p.Library }) {
		over := func(f func(p *Pairs) float64) stats.Spread { return stats.Across(group, f) }
		each := func(decimals int, f func(l *Load) float64) string {
			return stats.Figure(over(func(p *Pairs) float64 { return p.each(f(&p.Load)) }).Median, decimals)
		}
		samples := 0
		for _, p := range group {
			samples += p.Samples
		}
		t.AppendRow(table.Row{
			group[0].Library,
			over(func(p *Pairs) float64 { return p.PairP50Us }).Text(0),
			over(func(p *Pairs) float64 { return p.PairP90Us }).Text(0),
			stats.Figure(over(func(p *Pairs) float64 { return p.LockP50Us }).Median, 0),
			stats.Figure(over(func(p *Pairs) float64 { return p.UnlockP50Us }).Median, 0),
			stats.Ratios(group, r.Pairs, systemOf(group[0].Library).floor,
				func(p *Pairs) (string, int) { return p.Library, p.Round },
				func(p *Pairs) float64 { return p.PairP50Us }),
			each(2, (*Load).requests), each(2, (*Load).roundTrips), each(0, (*Load).bytes),
			each(0, (*Load).allocations), each(1, (*Load).kilobytes), each(2, (*Load).goroutines),
			each(0, (*Load).clientUs), samples,
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

func (r *Results) printContended(b *strings.Builder) {
	fmt.Fprintf(b, `
## One name

Over at most %d clients, hold %g ms, each cluster of %d, %g s a cell; who has held waits again at once. Ratio: of
acquisitions to those of the same system's recipe in the same round. Requests, bytes, allocations and client µs as
above, for an acquisition. The longest wait includes those that went on at the end. Fairness is Jain's index of the
waiters' acquisitions. Out of turn: acquisitions while another waited that had begun 10 ms earlier, or more. Those,
errors, and overlaps (two holders at once) are sums. Median (lowest–highest) of the rounds.

`, r.Contended[len(r.Contended)-1].Clients, r.HoldMs, r.Servers, r.Seconds)
	t := report.NewTable("waiters", "library", "acquisitions/s", "ratio", "wait p50 ms", "p99 ms", "longest ms",
		"requests", "bytes", "allocations", "client µs", "fairness", "out of turn", "errors", "overlaps")
	for _, group := range stats.Grouped(r.Contended, func(c Contended) string { return fmt.Sprint(c.Waiters, c.Library) }) {
		over := func(f func(c *Contended) float64) stats.Spread { return stats.Across(group, f) }
		each := func(decimals int, f func(l *Load) float64) string {
			return stats.Figure(over(func(c *Contended) float64 { return c.Each(f(&c.Load)) }).Median, decimals)
		}
		var outOfTurn, errs, overlaps int64
		for _, c := range group {
			outOfTurn, errs, overlaps = outOfTurn+int64(c.OutOfTurn), errs+int64(c.Errors), overlaps+c.Overlaps
		}
		t.AppendRow(table.Row{
			group[0].Waiters, group[0].Library,
			over((*Contended).rate).Text(0), r.contendedRatio(group),
			over(func(c *Contended) float64 { return c.WaitP50Ms }).Text(1),
			over(func(c *Contended) float64 { return c.WaitP99Ms }).Text(1),
			over(func(c *Contended) float64 { return c.WaitMaxMs }).Text(0),
			each(2, (*Load).requests), each(0, (*Load).bytes), each(0, (*Load).allocations), each(0, (*Load).clientUs),
			stats.Figure(over(func(c *Contended) float64 { return c.Jain }).Median, 3),
			outOfTurn, errs, overlaps,
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

// contendedRatio compares with as many waiters of the same round.
func (r *Results) contendedRatio(group []Contended) string {
	var all []Contended
	for _, c := range r.Contended {
		if c.Waiters == group[0].Waiters {
			all = append(all, c)
		}
	}
	return stats.Ratios(group, all, systemOf(group[0].Library).peer,
		func(c *Contended) (string, int) { return c.Library, c.Round }, (*Contended).rate)
}
