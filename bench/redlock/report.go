package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/chart"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/pairs"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/stats"
)

// Results are the raw figures of a run.
type Results struct {
	report.Setting
	Nodes  int     `json:"nodes"`
	HoldMs float64 `json:"holdMs"`

	ThinkMs float64 `json:"thinkMs"`
	Seconds float64 `json:"secondsPerCell"`

	Pairs      []pairs.Pairs    `json:"pairs"`
	Minorities []Minority       `json:"minorities"`
	Contended  []contend.Result `json:"contended"`
	Apart      []pairs.Apart    `json:"apart"`
}

func newResults(on *servers.Servers, o *options) *Results {
	return &Results{
		Setting: o.Libraries.Setting(on.Name), Nodes: len(on.Addrs),
		HoldMs: stats.Milliseconds(o.hold), ThinkMs: stats.Milliseconds(o.think), Seconds: o.duration.Seconds(),
	}
}

// Charts are of who waits, and of goroutines that share a client.
func (r *Results) Charts() []chart.Chart {
	prefix := fmt.Sprintf("redlock-%d", r.Nodes)
	return append(contend.Charts(r.Contended, prefix, "commands"), pairs.ApartCharts(r.Apart, prefix)...)
}

func (r *Results) Print(b *strings.Builder) {
	r.Setting.Print(b)
	if len(r.Pairs) > 0 {
		r.printPairs(b)
	}
	if len(r.Minorities) > 0 {
		r.printMinorities(b)
	}
	if len(r.Contended) > 0 {
		r.printContended(b)
	}
	if len(r.Apart) > 0 {
		r.printApart(b)
	}
}

func (r *Results) printPairs(b *strings.Builder) {
	fmt.Fprintf(b, `
## One goroutine, no contention

The time of a Lock, of an Unlock, and of both (a pair), of one goroutine on %d nodes, in µs. There are two ratios to %s
in the same round: of the p50 of a pair, and of the servers' time. The other columns are for a pair, over all nodes.
Sent: commands that clients sent. Run: commands that the servers counted, also those inside scripts. Server µs: the
servers' own time. Allocations, goroutines and client µs: what this process allocated, the goroutines that it started,
and its processor time. Each figure is the median (lowest–highest) of the rounds.

%s
`, r.Nodes, baselineName, pairs.RedisTable(r.Pairs, baselineName))
}

func (r *Results) printMinorities(b *strings.Builder) {
	fmt.Fprintf(b, `
## A minority unreachable

Lock and Unlock of one goroutine, in µs, before and while %d of %d nodes are stopped (SIGSTOP: connections stay, and
nobody answers) or killed. Ratio: the p50 of a pair while these nodes are unreachable, divided by that just before. The
longest is of all rounds. Slow libraries have few samples: a round lasts for a fixed time, and for at least one pair.
The other figures are the median (lowest–highest) of the rounds.

`, r.Minorities[0].Nodes, r.Nodes)
	t := report.NewTable("library", "nodes", "before p50", "p90", "unreachable p50", "p90", "longest",
		"Lock p50", "Unlock p50", "ratio", "samples", "errors")
	for _, group := range stats.Grouped(r.Minorities, func(m Minority) string { return m.Fault + m.Library }) {
		over := func(f func(m *Minority) float64) stats.Spread { return stats.Across(group, f) }
		t.AppendRow(table.Row{
			group[0].Library, group[0].Fault,
			stats.Figure(over(func(m *Minority) float64 { return m.Healthy.PairP50Us }).Median, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Healthy.PairP90Us }).Median, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Unreachable.PairP50Us }).Median, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Unreachable.PairP90Us }).Median, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Unreachable.PairMaxUs }).High, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Unreachable.LockP50Us }).Median, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Unreachable.UnlockP50Us }).Median, 0),
			over((*Minority).ratio).Text(2),
			stats.Sum(group, func(m *Minority) int { return m.Unreachable.Samples }),
			stats.Sum(group, func(m *Minority) int { return m.Errors }),
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

func (r *Results) printContended(b *strings.Builder) {
	fmt.Fprintf(b, `
## One name

The waiters share %d clients. A hold lasts %g ms; then the waiter pauses for %g ms. Each row ran for %g s. Each figure
is the median (lowest–highest) of the rounds. Sent, run and µs are as above, for an acquisition. The longest wait also
counts waits that had not ended at the end of the run. Starved: waiters without an acquisition. Errors and overlaps
(two holders at once) are sums over all rounds.

`, r.Contended[0].Clients, r.HoldMs, r.ThinkMs, r.Seconds)
	fmt.Fprintf(b, "%s\n", contend.Table(r.Contended))
}

func (r *Results) printApart(b *strings.Builder) {
	fmt.Fprintf(b, `
## Each its own name

All goroutines share a client. Each row ran for %g s. Ratio: to %s in the same round. Each figure is the median
(lowest–highest) of the rounds, but errors are sums. The other columns are as above.

%s
`, r.Seconds, baselineName, pairs.ApartTable(r.Apart, baselineName))
}
