package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// benchReport is the result of a bench.
type benchReport struct {
	Began           time.Time     `json:"began"`
	Rounds          int           `json:"rounds"`
	PairsPerRound   int           `json:"pairs_per_round"`
	Goroutines      int           `json:"goroutines"`
	DurationSeconds float64       `json:"duration_seconds"`
	Results         []benchResult `json:"results"`
}

// benchResult is the result of one server.
type benchResult struct {
	Backend        string    `json:"backend"`
	Pair           latency   `json:"pair"`
	HandOver       latency   `json:"hand_over"`
	PairsPerSecond []float64 `json:"pairs_per_second"` // of each round
}

// latency sums up many measurements.
type latency struct {
	Samples int     `json:"samples"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

func (s *subject) result() benchResult {
	return benchResult{s.label, latencyOf(s.pairs), latencyOf(s.handOvers), s.perSecond}
}

func latencyOf(all []time.Duration) latency {
	if len(all) == 0 {
		return latency{}
	}
	sorted := slices.Sorted(slices.Values(all))
	rank := func(percent int) float64 { // the nearest rank: a value that was measured
		return float64(sorted[(len(sorted)*percent+99)/100-1].Nanoseconds()) / 1000
	}
	return latency{len(sorted), rank(50), rank(99)}
}

// throughput returns the median of the rounds.
func (r benchResult) throughput() float64 {
	if len(r.PairsPerSecond) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.PairsPerSecond))
	return sorted[len(sorted)/2]
}

func (r *benchReport) write(w io.Writer, format string) error {
	if format == "json" {
		return writeJSON(w, r)
	}
	fmt.Fprintln(w, r.table().Render())
	_, err := fmt.Fprintln(w, r.caption())
	return err
}

func (r *benchReport) caption() string {
	return fmt.Sprintf("%d rounds, each with %d pairs, as many hand-overs within %v, and %v of throughput with %d goroutines.",
		r.Rounds, r.PairsPerRound, duration(r.DurationSeconds), duration(r.DurationSeconds), r.Goroutines)
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func (r *benchReport) table() table.Writer {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"Backend", "Pair p50", "p99", "Hand-over p50", "p99", "Pairs/s"})
	for _, b := range r.Results {
		t.AppendRow(table.Row{b.Backend, b.Pair.p50(), b.Pair.p99(), b.HandOver.p50(), b.HandOver.p99(), fmt.Sprintf("%.0f", b.throughput())})
	}
	var right []table.ColumnConfig
	for column := 2; column <= 6; column++ {
		right = append(right, table.ColumnConfig{Number: column, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	style := table.StyleRounded
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	return t
}

func (l latency) p50() string { return l.show(l.P50) }
func (l latency) p99() string { return l.show(l.P99) }

// show prints three digits.
func (l latency) show(us float64) string {
	switch {
	case l.Samples == 0:
		return "–"
	case us < 1000:
		return fmt.Sprintf("%.3g µs", us)
	case us < 1e6:
		return fmt.Sprintf("%.3g ms", us/1000)
	default:
		return fmt.Sprintf("%.3g s", us/1e6)
	}
}
