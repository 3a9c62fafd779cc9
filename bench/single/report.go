package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/chart"
	"github.com/go-locker/locker/bench/internal/pairs"
	"github.com/go-locker/locker/bench/internal/redislocks"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/stats"
)

// Results are the raw figures of a run.
type Results struct {
	report.Setting
	Seconds float64 `json:"secondsPerCell"`

	Pairs []pairs.Pairs `json:"pairs"`
	Apart []pairs.Apart `json:"apart"`
	Held  []Held        `json:"held"`
	Names []Names       `json:"names"`
}

func newResults(on *servers.Servers, o *options) *Results {
	return &Results{Setting: o.Libraries.Setting(on.Name), Seconds: o.crowds.Duration.Seconds()}
}

// Charts are of goroutines that share a client.
func (r *Results) Charts() []chart.Chart { return pairs.ApartCharts(r.Apart, "single") }

// Print writes tables.
func (r *Results) Print(b *strings.Builder) {
	r.Setting.Print(b)
	if len(r.Pairs) > 0 {
		fmt.Fprintf(b, `
## Nobody else

Lock and Unlock of one goroutine, in µs. Ratios are to %s in the same round: of the p50 of both, and of the server's
time. Sent: commands that clients sent, each a round trip; run: all that the server counted, those that scripts ran
among them; server µs: its own time for them; then what this process allocated, the goroutines that it started, and its
processor time; each for a pair. Median (lowest–highest) of the rounds.

%s
`, redislocks.Floor, pairs.RedisTable(r.Pairs, redislocks.Floor))
	}
	if len(r.Apart) > 0 {
		fmt.Fprintf(b, `
## Each its own name

Goroutines that share a client, %g s a cell. Ratio: to %s in the same round. Median (lowest–highest) of the rounds;
errors are sums. All else as above.

%s
`, r.Seconds, redislocks.PipeFloor, pairs.ApartTable(r.Apart, redislocks.PipeFloor))
	}
	if len(r.Held) > 0 {
		r.printHeld(b)
	}
	if len(r.Names) > 0 {
		r.printNames(b)
	}
}

func (r *Results) printHeld(b *strings.Builder) {
	fmt.Fprintf(b, `
## Held

One client holds so many locks with a TTL of %v, which are renewed %d times in one TTL, and nothing else happens. Commands,
and server µs, for 100 locks and one renewal of each. Goroutines, and heap bytes for a lock, are those that came with the
locks. Oldest: the longest that was seen since a lock was taken or last renewed, in parts of the TTL. Lost: how many were.

`, redislocks.TTL, renewalsPerTTL)
	t := report.NewTable("locks", "library", "commands", "server µs", "goroutines", "heap bytes", "client µs", "oldest", "lost")
	for i := range r.Held {
		h := &r.Held[i]
		oldest := "–"
		if h.Oldest > 0 {
			oldest = stats.Figure(h.Oldest, 2)
		}
		t.AppendRow(table.Row{
			h.Locks, h.Library,
			stats.Figure(h.each(float64(h.Load.Sent)), 2), stats.Figure(h.each(h.Load.Microseconds), 0),
			h.Goroutines, stats.Figure(float64(h.HeapBytes)/float64(h.Locks), 0),
			stats.Figure(h.each(h.Load.ClientUs()), 0), oldest, h.Lost,
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}
