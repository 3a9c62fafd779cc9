package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/chart"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/pairs"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/stats"
)

// Results are the raw figures of a run.
type Results struct {
	report.Setting
	Apart     []pairs.Apart    `json:"apart"`
	Contended []contend.Result `json:"contended"`
}

// Charts are of goroutines with a name each.
func (r *Results) Charts() []chart.Chart { return pairs.ApartCharts(r.Apart, "postgres") }

// Print writes a table.
func (r *Results) Print(b *strings.Builder) {
	r.Setting.Print(b)
	b.WriteString(`
Pairs of Lock and Unlock. Median (lowest–highest) of the rounds; connections: the most that the server has had; errors
and overlaps (two holders at once) are sums.

`)
	t := report.NewTable("goroutines", "names", "library", "pairs/s", "connections", "errors", "overlaps")
	for _, group := range stats.Grouped(r.Apart, func(a pairs.Apart) string { return fmt.Sprint(a.Goroutines, a.Library) }) {
		errs := stats.Sum(group, func(a *pairs.Apart) int64 { return a.Errors })
		t.AppendRow(table.Row{
			group[0].Goroutines, "one each", group[0].Library, stats.Across(group, (*pairs.Apart).Rate).Text(0),
			stats.Across(group, func(a *pairs.Apart) float64 { return float64(a.Load.Connections) }).High, errs, "–",
		})
	}
	for _, group := range stats.Grouped(r.Contended, func(c contend.Result) string { return fmt.Sprint(c.Waiters, c.Library) }) {
		t.AppendRow(table.Row{
			group[0].Waiters, "one", group[0].Library, stats.Across(group, (*contend.Result).Rate).Text(0),
			stats.Across(group, func(c *contend.Result) float64 { return float64(c.Load.Connections) }).High,
			stats.Sum(group, func(c *contend.Result) int { return c.Errors }),
			stats.Sum(group, func(c *contend.Result) int64 { return c.Overlaps }),
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}
