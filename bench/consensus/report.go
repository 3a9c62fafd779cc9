package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/chart"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/kills"
	"github.com/go-locker/locker/bench/internal/pairs"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/stats"
)

// Results are the raw figures of a run.
type Results struct {
	report.Setting
	Servers int     `json:"servers"` // of each cluster
	HoldMs  float64 `json:"holdMs"`
	Seconds float64 `json:"secondsPerCell"`

	Pairs     []pairs.Pairs    `json:"pairs"`
	Contended []contend.Result `json:"contended"`

	Kills []kills.Kill `json:"kills"`
}

func newResults(o *options) *Results {
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
	return contend.Charts(r.Contended, fmt.Sprintf("consensus-%d", r.Servers), "requests")
}

// Print writes tables.
func (r *Results) Print(b *strings.Builder) {
	r.Setting.Print(b)
	if len(r.Pairs) > 0 {
		r.printPairs(b)
	}
	if len(r.Contended) > 0 {
		r.printContended(b)
	}
	if len(r.Kills) > 0 {
		kills.Print(b, r.Kills)
	}
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
## One goroutine, no contention

The time of a Lock, of an Unlock, and of both (a pair), of one goroutine, in µs. Servers in each cluster: %d.
Ratio: the p50 of a pair, divided by that of the same system's "bare" in the same round. The other columns are for a
pair. Requests: messages that the client sent, without those that keep sessions alive. Round trips: messages that it
sent after all earlier ones were answered; those sent before that belong to the same round trip. Bytes: sent and
received, with what HTTP/2 adds. Allocations, goroutines and client µs: what this process allocated, the goroutines
that it started, and its processor time. Each figure is the median (lowest–highest) of the rounds.

%s
`, r.Servers, pairs.Table(r.Pairs, func(library string) string { return systemOf(library).floor },
		pairs.Column{Name: "requests", Decimals: 2, Of: (*servers.Load).Requests},
		pairs.Column{Name: "round trips", Decimals: 2, Of: (*servers.Load).RoundTrips},
		pairs.Column{Name: "bytes", Of: (*servers.Load).Bytes},
		pairs.Column{Name: "allocations", Of: (*servers.Load).Allocations},
		pairs.Column{Name: "bytes allocated", Of: (*servers.Load).Allocated},
		pairs.Column{Name: "goroutines", Decimals: 2, Of: (*servers.Load).Goroutines},
		pairs.Column{Name: "client µs", Of: (*servers.Load).ClientUs},
	))
}

func (r *Results) printContended(b *strings.Builder) {
	fmt.Fprintf(b, `
## One name

The waiters share clients, at most %d. A hold lasts %g ms; then the waiter asks again at once. Servers in each
cluster: %d. Each row ran for %g s. Ratio: the acquisitions, divided by those of the system's own lock
(concurrency.Mutex or zk.Lock) in the same round. Requests, bytes, allocations and client µs are as above, for an
acquisition. The longest wait also counts waits that had not ended at the end of the run. Fairness is Jain's index of
the waiters' acquisitions. Out of turn: acquisitions while another had waited for at least 10 ms longer. These, errors,
and overlaps (two holders at once) are sums. The other figures are the median (lowest–highest) of the rounds.

`, r.Contended[len(r.Contended)-1].Clients, r.HoldMs, r.Servers, r.Seconds)
	t := report.NewTable("waiters", "library", "acquisitions/s", "ratio", "wait p50 ms", "p99 ms", "longest ms",
		"requests", "bytes", "allocations", "client µs", "fairness", "out of turn", "errors", "overlaps")
	for _, group := range stats.Grouped(r.Contended, func(c contend.Result) string { return fmt.Sprint(c.Waiters, c.Library) }) {
		over := func(f func(c *contend.Result) float64) stats.Spread { return stats.Across(group, f) }
		each := func(decimals int, f func(l *servers.Load) float64) string {
			return stats.Figure(over(func(c *contend.Result) float64 { return c.Each(f(&c.Load)) }).Median, decimals)
		}
		t.AppendRow(table.Row{
			group[0].Waiters, group[0].Library,
			over((*contend.Result).Rate).Text(0), r.contendedRatio(group),
			over(func(c *contend.Result) float64 { return c.WaitP50Ms }).Text(1),
			over(func(c *contend.Result) float64 { return c.WaitP99Ms }).Text(1),
			over(func(c *contend.Result) float64 { return c.WaitMaxMs }).Text(0),
			each(2, (*servers.Load).Requests), each(0, (*servers.Load).Bytes), each(0, (*servers.Load).Allocations), each(0, (*servers.Load).ClientUs),
			stats.Figure(over(func(c *contend.Result) float64 { return c.Jain }).Median, 3),
			stats.Sum(group, func(c *contend.Result) int { return c.OutOfTurn }),
			stats.Sum(group, func(c *contend.Result) int { return c.Errors }),
			stats.Sum(group, func(c *contend.Result) int64 { return c.Overlaps }),
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

// contendedRatio compares with as many waiters of the same round.
func (r *Results) contendedRatio(group []contend.Result) string {
	var all []contend.Result
	for _, c := range r.Contended {
		if c.Waiters == group[0].Waiters {
			all = append(all, c)
		}
	}
	return stats.Ratios(group, all, systemOf(group[0].Library).peer,
		func(c *contend.Result) (string, int) { return c.Library, c.Round }, (*contend.Result).Rate)
}
