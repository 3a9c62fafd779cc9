package contend

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/stats"
)

// Table has a row for each library and number of waiters and clients, over all rounds.
func Table(all []Result) string {
	t := report.NewTable("waiters", "clients", "library", "acquisitions/s", "wait p50 ms", "p99 ms", "longest ms",
		"sent", "run", "µs", "fairness", "starved", "errors", "overlaps")
	for _, group := range stats.Grouped(all, func(c Result) string { return fmt.Sprint(c.Waiters, c.Clients, c.Library) }) {
		over := func(f func(c *Result) float64) stats.Spread { return stats.Across(group, f) }
		t.AppendRow(table.Row{
			group[0].Waiters, group[0].Clients, group[0].Library,
			over((*Result).Rate).Text(0),
			over(func(c *Result) float64 { return c.WaitP50Ms }).Text(1),
			over(func(c *Result) float64 { return c.WaitP99Ms }).Text(0),
			over(func(c *Result) float64 { return c.WaitMaxMs }).Text(0),
			stats.Figure(over(func(c *Result) float64 { return c.Each(c.Load.Requests()) }).Median, 1),
			stats.Figure(over(func(c *Result) float64 { return c.Each(c.Load.Ran()) }).Median, 1),
			stats.Figure(over(func(c *Result) float64 { return c.Each(c.Load.ServerUs()) }).Median, 0),
			stats.Figure(over(func(c *Result) float64 { return c.Jain }).Median, 2),
			stats.Figure(over(func(c *Result) float64 { return float64(c.Starved) }).Median, 0),
			stats.Sum(group, func(c *Result) int { return c.Errors }),
			stats.Sum(group, func(c *Result) int64 { return c.Overlaps }),
		})
	}
	return t.RenderMarkdown()
}
