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
## One goroutine, no contention

The time of a Lock, of an Unlock, and of both (a pair), of one goroutine, in µs. There are two ratios to %s
in the same round: of the p50 of a pair, and of the server's time. The other columns are for a pair. Sent: commands that
clients sent, each a round trip. Run: commands that the server counted, also those inside scripts. Server µs: the
server's own time. Allocations, goroutines and client µs: what this process allocated, the goroutines that it started,
and its processor time. Each figure is the median (lowest–highest) of the rounds.

%s
`, redislocks.Floor, pairs.RedisTable(r.Pairs, redislocks.Floor))
	}
	if len(r.Apart) > 0 {
		fmt.Fprintf(b, `
## Each its own name

All goroutines share a client. Each row ran for %g s. Ratio: to %s in the same round. Each figure is the median
(lowest–highest) of the rounds, but errors are sums. The other columns are as above.

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

One client holds the locks of the first column, with a TTL of %v. locker renews a lock %d times in one TTL. Nothing else
happens. Commands, and server µs, are for 100 locks and one renewal of each. Goroutines: what the locks added. Heap
bytes: what each lock added. Oldest: the longest time between a take or renewal of a lock and its next renewal, in parts
of the TTL. Lost: how many locks were lost.

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
