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
## Nobody else

Lock and Unlock of one goroutine on %d nodes, in µs. Ratios are to %s in the same round: of the p50 of both, and of
the servers' time. Sent: commands that clients sent; run: all that the servers counted, those that scripts ran among
them; server µs: the servers' own time for them; then what this process allocated, the goroutines that it started, and
its processor time; each for a pair, over all nodes. Median (lowest–highest) of the rounds.

%s
`, r.Nodes, baselineName, pairs.RedisTable(r.Pairs, baselineName))
}

func (r *Results) printMinorities(b *strings.Builder) {
	fmt.Fprintf(b, `
## A minority unreachable

Lock and Unlock of one goroutine, in µs, before and while %d of %d nodes are stopped (SIGSTOP: connections stay, and
nobody answers) or killed. Ratio: of the p50 of both while they are unreachable to that just before. The longest is of
all rounds. What takes seconds has few samples: a round is so many pairs as begin in a time, and at least one.
Median (lowest–highest) of the rounds.

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

Over %d clients, hold %g ms, think %g ms, %g s a cell. Median (lowest–highest) of the rounds. Sent, run and µs as
above, for an acquisition. The longest wait includes those that went on at the end. Starved: waiters
without an acquisition. Errors and overlaps (two holders at once) are sums over all rounds.

`, r.Contended[0].Clients, r.HoldMs, r.ThinkMs, r.Seconds)
	fmt.Fprintf(b, "%s\n", contend.Table(r.Contended))
}

func (r *Results) printApart(b *strings.Builder) {
	fmt.Fprintf(b, `
## Each its own name

Goroutines that share a client, %g s a cell. Ratio: to %s in the same round. Median (lowest–highest) of the
rounds; errors are sums. All else as above.

%s
`, r.Seconds, baselineName, pairs.ApartTable(r.Apart, baselineName))
}
