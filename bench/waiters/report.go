package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/chart"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/kills"
	"github.com/go-locker/locker/bench/internal/redislocks"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/stats"
)

// Results are the raw figures of a run.
type Results struct {
	report.Setting
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"secondsPerCell"`

	Contended []contend.Result `json:"contended"`
	Handovers []Handover       `json:"handovers"`
	Drains    []Drain          `json:"drains"`
	Kills     []kills.Kill     `json:"kills"`
	Idle      []Idle           `json:"idle"`
}

func newResults(on *servers.Servers, o *options) *Results {
	return &Results{Setting: o.Libraries.Setting(on.Name), Rounds: o.rounds, Seconds: o.duration.Seconds()}
}

// Charts are of who waits.
func (r *Results) Charts() []chart.Chart { return contend.Charts(r.Contended, "waiters", "commands") }

func (r *Results) Print(b *strings.Builder) {
	r.Setting.Print(b)
	if len(r.Contended) > 0 {
		r.printContended(b)
	}
	if len(r.Handovers) > 0 {
		r.printHandovers(b)
	}
	if len(r.Drains) > 0 {
		r.printDrains(b)
	}
	if len(r.Kills) > 0 {
		kills.Print(b, r.Kills)
	}
	if len(r.Idle) > 0 {
		r.printIdle(b)
	}
}

func (r *Results) printContended(b *strings.Builder) {
	fmt.Fprintf(b, `
## One name

A hold lasts %v; then the waiter pauses for %v. Each row ran for %g s. Rounds: %d; each figure is their median
(lowest–highest). Sent: commands that clients sent. Run: commands that the server counted, also those inside scripts.
µs: the server's own time. All three are for an acquisition. The longest wait also counts waits that had not ended at
the end of the run. Starved: waiters without an acquisition. Errors and overlaps (two holders at once) are sums over
all rounds.

`, hold, think, r.Seconds, r.Rounds)
	fmt.Fprintf(b, "%s\n", contend.Table(r.Contended))
}

func (r *Results) printHandovers(b *strings.Builder) {
	fmt.Fprintf(b, `
## Hand-over

The time from the call of Unlock until the Lock of one of %d waiters returns. A hold lasts %v. Round trips of PING
were measured at the same time. Rounds: %d; each figure is their median (lowest–highest), but samples, errors and
overlaps are sums.

`, r.Handovers[0].Waiters, handoverHold, r.Rounds)
	t := report.NewTable("library", "p50 µs", "p99 µs", "PING p50 µs", "PING p99 µs", "p50 in PINGs", "samples", "errors", "overlaps")
	for _, group := range stats.Grouped(r.Handovers, func(h Handover) string { return h.Library }) {
		over := func(f func(h *Handover) float64) stats.Spread { return stats.Across(group, f) }
		t.AppendRow(table.Row{
			group[0].Library,
			over(func(h *Handover) float64 { return h.P50Us }).Text(0),
			over(func(h *Handover) float64 { return h.P99Us }).Text(0),
			over(func(h *Handover) float64 { return h.PingP50Us }).Text(0),
			over(func(h *Handover) float64 { return h.PingP99Us }).Text(0),
			stats.Figure(over(func(h *Handover) float64 { return h.P50Us / max(h.PingP50Us, 1) }).Median, 1),
			stats.Sum(group, func(h *Handover) int { return h.Samples }),
			stats.Sum(group, func(h *Handover) int { return h.Errors }),
			stats.Sum(group, func(h *Handover) int64 { return h.Overlaps }),
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

func (r *Results) printDrains(b *strings.Builder) {
	fmt.Fprintf(b, `
## All at once

%d waiters ask at the same moment, and each holds the lock once, for %v. ms: the time until the last has released the
lock. Ratio: this time, divided by the sum of the holds. Unheld: the part of the time in which nobody held the lock.
Sent is as in the first table. Each figure is the median (lowest–highest) of the rounds, but overlaps and errors are
sums.

`, r.Drains[0].Contenders, drainHold)
	t := report.NewTable("library", "ms", "ratio", "unheld", "sent", "overlaps", "errors")
	for _, group := range stats.Grouped(r.Drains, func(d Drain) string { return d.Library }) {
		over := func(f func(d *Drain) float64) stats.Spread { return stats.Across(group, f) }
		var errs int
		var overlaps int64
		for _, d := range group {
			overlaps += d.Overlaps
			if d.Error != "" {
				errs++
			}
		}
		t.AppendRow(table.Row{
			group[0].Library,
			over(func(d *Drain) float64 { return 1000 * d.Seconds }).Text(0),
			over((*Drain).ratio).Text(2),
			over(func(d *Drain) float64 { return 1 - d.Held/d.Seconds }).Text(2),
			stats.Figure(over(func(d *Drain) float64 { return float64(d.Load.Sent) / float64(d.Contenders) }).Median, 1),
			overlaps, errs,
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

func (r *Results) printIdle(b *strings.Builder) {
	first := r.Idle[0]
	fmt.Fprintf(b, `
## Nothing happens

There are %d waiters, each on a client of its own, behind one hold with a TTL of %v. At first, in %.1f s, all connect. Then
they wait for %.1f s. Sent and run are the commands that all clients sent, and that the server counted.

`, first.Waiters, redislocks.TTL, first.WarmUp.Seconds, first.Waiting.Seconds)
	t := report.NewTable("library", "sent at first", "run at first", "sent then", "run then",
		"sent/s", "run/s", "server µs/s", "overlaps")
	for _, i := range r.Idle {
		perSecond := func(n float64) string { return stats.Figure(n/i.Waiting.Seconds, 1) }
		t.AppendRow(table.Row{
			i.Library, i.WarmUp.Sent, i.WarmUp.Run, i.Waiting.Sent, i.Waiting.Run,
			perSecond(float64(i.Waiting.Sent)), perSecond(float64(i.Waiting.Run)),
			perSecond(i.Waiting.Microseconds), i.Overlaps,
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}
