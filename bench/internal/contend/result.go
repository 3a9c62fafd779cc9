package contend

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-locker/locker/bench/internal/chart"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/wire"
)

// Result is what came of one Cell.
type Result struct {
	Library string       `json:"library"`
	Round   int          `json:"round"`
	Waiters int          `json:"waiters"`
	Clients int          `json:"clients"`
	Load    servers.Load `json:"load"`
	Outcome
}

// Rate is in acquisitions a second.
func (r *Result) Rate() float64 { return float64(r.Acquisitions) / r.Load.Seconds }

// Measure has them contend for a while.
func (l Library) Measure(ctx context.Context, on *servers.Servers, cell Cell) (Result, error) {
	r := Result{Library: l.Name, Round: cell.Round, Waiters: cell.Waiters, Clients: min(cell.Waiters, cell.Clients)}
	sent := wire.NewTally()
	clients, closeAll, err := l.OpenClients(r.Clients, on.Addrs, sent)
	if err != nil {
		return r, err
	}
	defer closeAll()
	r.Outcome, err = cell.Run(ctx, clients, func(measure func() error) (err error) {
		r.Load, err = on.During(ctx, sent, measure)
		return err
	})
	return r, err
}

// Charts are of what many who wait for one name come to, spread over the most clients. Names of
// files begin with prefix, and sent is what clients send.
func Charts(all []Result, prefix, sent string) []chart.Chart {
	if len(all) == 0 {
		return nil
	}
	most := 0
	for _, r := range all {
		most = max(most, r.Clients)
	}
	spread := slices.DeleteFunc(slices.Clone(all), func(r Result) bool { return r.Clients < min(most, r.Waiters) })
	lines := func(y func(r *Result) float64) []chart.Series {
		return chart.Of(spread, func(r *Result) string { return r.Library }, func(r *Result) float64 { return float64(r.Waiters) }, y)
	}
	return []chart.Chart{
		{
			File: prefix + "-acquisitions", Title: fmt.Sprintf("One name, over %d clients at most", most), X: "waiters", Y: "acquisitions a second",
			Series: lines((*Result).Rate),
		},
		{
			File: prefix + "-" + sent, Title: fmt.Sprintf("One name, over %d clients at most", most), X: "waiters", Y: sent + " sent for an acquisition", LogY: true,
			Series: lines(func(r *Result) float64 { return r.Each(r.Load.Requests()) }),
		},
	}
}
