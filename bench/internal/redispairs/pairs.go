// Package redispairs measures Lock and Unlock on Redis servers: of one goroutine with nobody else, and of many that
// share a client, each with a name of its own.
package redispairs

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/pairs"
	"github.com/go-locker/locker/bench/internal/redisserver"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/self"
	"github.com/go-locker/locker/bench/internal/stats"
	"github.com/go-locker/locker/bench/internal/wire"
)

const (
	// Pairs at the beginning of a block that are not measured: threads and processors wake.
	unmeasured = 5
	// Settle is how long what a library leaves under way has to end, before the next has its turn.
	Settle = 2 * time.Millisecond
)

// Pairs is what Lock and Unlock cost in one round, with nobody else.
type Pairs struct {
	Library string `json:"library"`
	Round   int    `json:"round"`
	pairs.Timing
	Load   redisserver.Load `json:"load"`   // with the pairs that are not measured
	Client self.Use         `json:"client"` // of this process, of those pairs
	LoadOf int              `json:"loadOf"` // how many pairs that is of
}

func (p *Pairs) each(total float64) float64 { return total / float64(max(p.LoadOf, 1)) }

// Series is one library through all rounds: its client stays connected.
type Series struct {
	Library contend.Library
	Client  *contend.Client
	sent    *wire.Tally

	samples pairs.Samples
	load    redisserver.Load
	loadOf  int
	client  self.Use
}

// OpenSeries has done what is done only once: connections made, scripts sent.
func OpenSeries(ctx context.Context, servers redisserver.Servers, l contend.Library, pairs int) (*Series, error) {
	s := &Series{Library: l, sent: wire.NewTally()}
	var err error
	if s.Client, err = l.Connect(servers.Addrs(), s.sent); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	if err := s.Block(ctx, servers, "pairs-first-"+l.Name, pairs); err != nil {
		s.Client.Close()
		return nil, err
	}
	s.SumUp(0)
	return s, nil
}

// Block measures some pairs.
func (s *Series) Block(ctx context.Context, servers redisserver.Servers, name string, n int) error {
	lock := s.Client.Waiter(name)
	before, err := servers.Usage(ctx, s.sent)
	if err != nil {
		return err
	}
	used := self.Now()
	for i := range unmeasured + n {
		lockTook, unlockTook, err := pairs.Once(ctx, lock)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if i >= unmeasured {
			s.samples.Add(lockTook, unlockTook)
		}
	}
	contend.Sleep(ctx, Settle)
	s.client = s.client.Add(self.Now().Sub(used))
	after, err := servers.Usage(ctx, s.sent)
	if err != nil {
		return err
	}
	s.load = s.load.Add(redisserver.LoadBetween(before, after))
	s.loadOf += unmeasured + n
	return nil
}

// SumUp ends a round.
func (s *Series) SumUp(round int) Pairs {
	p := Pairs{
		Library: s.Library.Name, Round: round, Timing: s.samples.Timing(),
		Load: s.load, LoadOf: s.loadOf, Client: s.client,
	}
	s.samples, s.load, s.loadOf, s.client = pairs.Samples{}, redisserver.Load{}, 0, self.Use{}
	return p
}

// Plan is how pairs are measured: libraries take turns, a block each, several times a round.
type Plan struct {
	Libraries             contend.Libraries
	Rounds, Blocks, Block int
}

// Measure returns what each library came to in each round.
func (plan Plan) Measure(ctx context.Context, servers redisserver.Servers, progress io.Writer) ([]Pairs, error) {
	byName := make(map[string]*Series)
	defer func() {
		for _, s := range byName {
			s.Client.Close()
		}
	}()
	for _, l := range plan.Libraries {
		s, err := OpenSeries(ctx, servers, l, plan.Block)
		if err != nil {
			return nil, err
		}
		byName[l.Name] = s
	}
	var all []Pairs
	for round := range plan.Rounds {
		for turn := range plan.Blocks {
			for _, l := range plan.Libraries.Turn(round*plan.Blocks + turn) {
				name := fmt.Sprintf("pairs-%s-%d-%d", l.Name, round, turn)
				if err := byName[l.Name].Block(ctx, servers, name, plan.Block); err != nil {
					return nil, err
				}
			}
		}
		for _, l := range plan.Libraries {
			p := byName[l.Name].SumUp(round)
			fmt.Fprintf(progress, "round %d of %d: pairs, %s: %.0f µs\n", round+1, plan.Rounds, l.Name, p.PairP50Us)
			all = append(all, p)
		}
	}
	return all, nil
}

// Table has a row for each library, over all rounds. Ratios are to the baseline's in the same round.
func Table(all []Pairs, baseline string) string {
	t := report.NewTable("library", "p50", "p90", "Lock p50", "Unlock p50", "ratio", "sent", "run", "server µs",
		"ratio of that", "allocations", "bytes", "goroutines", "client µs", "samples")
	key := func(p *Pairs) (string, int) { return p.Library, p.Round }
	serverUs := func(p *Pairs) float64 { return p.each(p.Load.Microseconds) }
	for _, group := range stats.Grouped(all, func(p Pairs) string { return p.Library }) {
		over := func(f func(p *Pairs) float64) stats.Spread { return stats.Across(group, f) }
		each := func(decimals int, f func(p *Pairs) float64) string {
			return stats.Figure(over(func(p *Pairs) float64 { return p.each(f(p)) }).Median, decimals)
		}
		samples := 0
		for _, p := range group {
			samples += p.Samples
		}
		t.AppendRow(table.Row{
			group[0].Library,
			over(func(p *Pairs) float64 { return p.PairP50Us }).Text(0),
			over(func(p *Pairs) float64 { return p.PairP90Us }).Text(0),
			stats.Figure(over(func(p *Pairs) float64 { return p.LockP50Us }).Median, 0),
			stats.Figure(over(func(p *Pairs) float64 { return p.UnlockP50Us }).Median, 0),
			stats.Ratios(group, all, baseline, key, func(p *Pairs) float64 { return p.PairP50Us }),
			each(1, func(p *Pairs) float64 { return float64(p.Load.Sent) }),
			each(1, func(p *Pairs) float64 { return float64(p.Load.Run) }),
			each(1, func(p *Pairs) float64 { return p.Load.Microseconds }),
			stats.Ratios(group, all, baseline, key, serverUs),
			each(1, func(p *Pairs) float64 { return float64(p.Client.Allocations) }),
			each(0, func(p *Pairs) float64 { return float64(p.Client.Bytes) }),
			each(1, func(p *Pairs) float64 { return float64(p.Client.Goroutines) }),
			each(0, func(p *Pairs) float64 { return stats.Microseconds(p.Client.Processor) }),
			samples,
		})
	}
	return t.RenderMarkdown()
}
