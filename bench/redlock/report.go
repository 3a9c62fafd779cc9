package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/redisserver"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/stats"
)

// Results are the raw figures of a run.
type Results struct {
	report.Setting
	Nodes  int     `json:"nodes"`
	HoldMs float64 `json:"holdMs"`

	ThinkMs float64 `json:"thinkMs"`
	Seconds float64 `json:"secondsPerCell"`

	Pairs      []Pairs          `json:"pairs"`
	Minorities []Minority       `json:"minorities"`
	Contended  []contend.Result `json:"contended"`
	Apart      []Apart          `json:"apart"`
}

func newResults(servers redisserver.Servers, o options) *Results {
	return &Results{
		Setting: o.Libraries.Setting(servers[0].Version), Nodes: len(servers),
		HoldMs: stats.Milliseconds(o.hold), ThinkMs: stats.Milliseconds(o.think), Seconds: o.duration.Seconds(),
	}
}

func (r *Results) Print(w io.Writer) error {
	var b strings.Builder
	r.Setting.Print(&b)
	if len(r.Pairs) > 0 {
		r.printPairs(&b)
	}
	if len(r.Minorities) > 0 {
		r.printMinorities(&b)
	}
	if len(r.Contended) > 0 {
		r.printContended(&b)
	}
	if len(r.Apart) > 0 {
		r.printApart(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ratios divides the value of each by that of the baseline in the same round, if that was measured.
func ratios[T any](group, all []T, key func(*T) (library string, round int), value func(*T) float64) string {
	base := make(map[int]float64)
	for i := range all {
		if library, round := key(&all[i]); library == baselineName {
			base[round] = value(&all[i])
		}
	}
	var quotients []float64
	for i := range group {
		if _, round := key(&group[i]); base[round] > 0 {
			quotients = append(quotients, value(&group[i])/base[round])
		}
	}
	if len(quotients) == 0 {
		return "–"
	}
	return stats.SpreadOf(quotients).Text(2)
}

func (r *Results) printPairs(b *strings.Builder) {
	fmt.Fprintf(b, `
## Nobody else

Lock and Unlock of one goroutine on %d nodes, in µs. Ratio: of the p50 of both to that of %s in the same
round. Sent: commands that clients sent; run: all that the servers counted, those that scripts ran among
them; server µs: the servers' own time for them; client µs: processor time of this process; each for a pair, over
all nodes. Median (lowest–highest) of the rounds.

`, r.Nodes, baselineName)
	t := report.NewTable("library", "p50", "p90", "Lock p50", "p90", "Unlock p50", "p90", "ratio",
		"sent", "run", "server µs", "client µs", "samples")
	for _, group := range stats.Grouped(r.Pairs, func(p Pairs) string { return p.Library }) {
		over := func(f func(p *Pairs) float64) stats.Spread { return stats.Across(group, f) }
		samples := 0
		for _, p := range group {
			samples += p.Samples
		}
		t.AppendRow(table.Row{
			group[0].Library,
			over(func(p *Pairs) float64 { return p.PairP50Us }).Text(0),
			over(func(p *Pairs) float64 { return p.PairP90Us }).Text(0),
			stats.Figure(over(func(p *Pairs) float64 { return p.LockP50Us }).Median, 0),
			stats.Figure(over(func(p *Pairs) float64 { return p.LockP90Us }).Median, 0),
			stats.Figure(over(func(p *Pairs) float64 { return p.UnlockP50Us }).Median, 0),
			stats.Figure(over(func(p *Pairs) float64 { return p.UnlockP90Us }).Median, 0),
			ratios(group, r.Pairs, func(p *Pairs) (string, int) { return p.Library, p.Round },
				func(p *Pairs) float64 { return p.PairP50Us }),
			stats.Figure(over(func(p *Pairs) float64 { return p.each(float64(p.Load.Sent)) }).Median, 1),
			stats.Figure(over(func(p *Pairs) float64 { return p.each(float64(p.Load.Run)) }).Median, 1),
			stats.Figure(over(func(p *Pairs) float64 { return p.each(p.Load.Microseconds) }).Median, 0),
			stats.Figure(over(func(p *Pairs) float64 { return p.each(p.ClientUs) }).Median, 0),
			samples,
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

func (p *Pairs) each(total float64) float64 { return total / float64(max(p.LoadOf, 1)) }

func (r *Results) printMinorities(b *strings.Builder) {
	fmt.Fprintf(b, `
## A minority away

Lock and Unlock of one goroutine, in µs, before and while %d of %d nodes are stopped (SIGSTOP: connections stay, and
nobody answers) or killed. Ratio: of the p50 of both while they are away to that just before. The longest is of
all rounds. What takes seconds has few samples: a round is so many pairs as begin in a time, and at least one.
Median (lowest–highest) of the rounds.

`, r.Minorities[0].Nodes, r.Nodes)
	t := report.NewTable("library", "nodes", "before p50", "p90", "away p50", "p90", "longest",
		"Lock p50", "Unlock p50", "ratio", "samples", "errors")
	for _, group := range stats.Grouped(r.Minorities, func(m Minority) string { return m.Fault + m.Library }) {
		over := func(f func(m *Minority) float64) stats.Spread { return stats.Across(group, f) }
		var samples, errs int
		for _, m := range group {
			samples, errs = samples+m.Away.Samples, errs+m.Errors
		}
		t.AppendRow(table.Row{
			group[0].Library, group[0].Fault,
			stats.Figure(over(func(m *Minority) float64 { return m.Healthy.PairP50Us }).Median, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Healthy.PairP90Us }).Median, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Away.PairP50Us }).Median, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Away.PairP90Us }).Median, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Away.PairMaxUs }).High, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Away.LockP50Us }).Median, 0),
			stats.Figure(over(func(m *Minority) float64 { return m.Away.UnlockP50Us }).Median, 0),
			over((*Minority).ratio).Text(2), samples, errs,
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

%d goroutines that share a client, %g s a cell. Ratio: to %s in the same round. Median (lowest–highest) of the
rounds; errors are sums. Sent, µs and client µs as above.

`, r.Apart[0].Goroutines, r.Seconds, baselineName)
	t := report.NewTable("library", "pairs/s", "ratio", "sent", "server µs", "client µs", "errors")
	for _, group := range stats.Grouped(r.Apart, func(a Apart) string { return a.Library }) {
		over := func(f func(a *Apart) float64) stats.Spread { return stats.Across(group, f) }
		var errs int64
		for _, a := range group {
			errs += a.Errors
		}
		t.AppendRow(table.Row{
			group[0].Library,
			over((*Apart).rate).Text(0),
			ratios(group, r.Apart, func(a *Apart) (string, int) { return a.Library, a.Round }, (*Apart).rate),
			stats.Figure(over(func(a *Apart) float64 { return a.each(float64(a.Load.Sent)) }).Median, 1),
			stats.Figure(over(func(a *Apart) float64 { return a.each(a.Load.Microseconds) }).Median, 0),
			stats.Figure(over(func(a *Apart) float64 { return a.each(a.ClientUs) }).Median, 0),
			errs,
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}
