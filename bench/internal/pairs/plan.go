package pairs

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/stats"
	"github.com/go-locker/locker/bench/internal/wire"
)

const (
	// Pairs at the beginning of a block that are not timed: threads and processors wake.
	untimed = 5
	// Settle is how long what a library leaves under way has to end, before the next has its turn.
	Settle = 2 * time.Millisecond
)

// Pairs is what Lock and Unlock cost in one round, with nobody else.
type Pairs struct {
	Library string `json:"library"`
	Round   int    `json:"round"`
	Timing
	Load   servers.Load `json:"load"`   // with the pairs that are not timed
	LoadOf int          `json:"loadOf"` // how many pairs that is of
}

func (p *Pairs) key() (library string, round int) { return p.Library, p.Round }

func (p *Pairs) each(total float64) float64 { return total / float64(max(p.LoadOf, 1)) }

// Series is one library through all rounds: its client stays connected.
type Series struct {
	Library contend.Library
	Client  *contend.Client
	servers *servers.Servers
	sent    *wire.Tally

	samples Samples
	load    servers.Load
	loadOf  int
}

// OpenSeries has done what is done only once: connections made, scripts sent.
func OpenSeries(ctx context.Context, on *servers.Servers, l contend.Library, pairs int) (*Series, error) {
	s := &Series{Library: l, servers: on, sent: wire.NewTally()}
	var err error
	if s.Client, err = l.Connect(on.Addrs, s.sent); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	if err := s.Block(ctx, l.LockName("pairs"), pairs); err != nil {
		s.Client.Close()
		return nil, err
	}
	s.SumUp(0)
	return s, nil
}

// Block measures some pairs.
func (s *Series) Block(ctx context.Context, name string, n int) error {
	lock := s.Client.Waiter(name)
	load, err := s.servers.During(ctx, s.sent, func() error {
		for i := range untimed + n {
			lockTook, unlockTook, err := Once(ctx, lock)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if i >= untimed {
				s.samples.Add(lockTook, unlockTook)
			}
		}
		contend.Sleep(ctx, Settle)
		return nil
	})
	s.load = s.load.Add(load)
	s.loadOf += untimed + n
	return err
}

// SumUp ends a round.
func (s *Series) SumUp(round int) Pairs {
	p := Pairs{Library: s.Library.Name, Round: round, Timing: s.samples.Timing(), Load: s.load, LoadOf: s.loadOf}
	s.samples, s.load, s.loadOf = Samples{}, servers.Load{}, 0
	return p
}

// Plan is how pairs are measured: libraries take turns, a block each, several times a round.
type Plan struct{ Rounds, Blocks, Block int }

// Flags adds those of how often.
func (plan *Plan) Flags(f *flag.FlagSet) {
	f.IntVar(&plan.Rounds, "rounds", 10, "rounds of pairs")
	f.IntVar(&plan.Blocks, "blocks", 6, "how often the libraries take turns in such a round")
	f.IntVar(&plan.Block, "block", 100, "pairs of Lock and Unlock at each turn")
}

// Check returns an error if there is nothing to measure.
func (plan *Plan) Check() error {
	if min(plan.Rounds, plan.Blocks, plan.Block) < 1 {
		return errors.New("-rounds, -blocks and -block are at least 1")
	}
	return nil
}

// Measure returns what each library came to in each round.
func (plan Plan) Measure(
	ctx context.Context, libraries contend.Libraries, on *servers.Servers, progress io.Writer,
) ([]Pairs, error) {
	byName := make(map[string]*Series)
	defer func() {
		for _, s := range byName {
			s.Client.Close()
		}
	}()
	for _, l := range libraries {
		s, err := OpenSeries(ctx, on, l, plan.Block)
		if err != nil {
			return nil, err
		}
		byName[l.Name] = s
	}
	var all []Pairs
	for round := range plan.Rounds {
		for turn := range plan.Blocks {
			for _, l := range libraries.Turn(round*plan.Blocks + turn) {
				if err := byName[l.Name].Block(ctx, l.LockName("pairs"), plan.Block); err != nil {
					return nil, err
				}
			}
		}
		for _, l := range libraries {
			p := byName[l.Name].SumUp(round)
			fmt.Fprintf(progress, "round %d of %d: pairs, %s: %.0f µs\n", round+1, plan.Rounds, l.Name, p.PairP50Us)
			all = append(all, p)
		}
	}
	return all, nil
}

// Column is a figure of a Load that Table shows, for one pair.
type Column struct {
	Name     string
	Decimals int
	Of       func(*servers.Load) float64
	Ratio    bool // to the baseline's, in its place
}

// Table has a row for each library, over all rounds. Ratios are to its baseline's in the same
// round.
func Table(all []Pairs, baseline func(library string) string, columns ...Column) string {
	names := []string{"library", "p50", "p90", "Lock p50", "Unlock p50", "ratio"}
	for _, c := range columns {
		names = append(names, c.Name)
	}
	t := report.NewTable(append(names, "samples")...)
	for _, group := range stats.Grouped(all, func(p Pairs) string { return p.Library }) {
		over := func(f func(p *Pairs) float64) stats.Spread { return stats.Across(group, f) }
		ratios := func(f func(p *Pairs) float64) string {
			return stats.Ratios(group, all, baseline(group[0].Library), (*Pairs).key, f)
		}
		row := table.Row{
			group[0].Library,
			over(func(p *Pairs) float64 { return p.PairP50Us }).Text(0),
			over(func(p *Pairs) float64 { return p.PairP90Us }).Text(0),
			stats.Figure(over(func(p *Pairs) float64 { return p.LockP50Us }).Median, 0),
			stats.Figure(over(func(p *Pairs) float64 { return p.UnlockP50Us }).Median, 0),
			ratios(func(p *Pairs) float64 { return p.PairP50Us }),
		}
		for _, c := range columns {
			each := func(p *Pairs) float64 { return p.each(c.Of(&p.Load)) }
			if c.Ratio {
				row = append(row, ratios(each))
			} else {
				row = append(row, stats.Figure(over(each).Median, c.Decimals))
			}
		}
		t.AppendRow(append(row, stats.Sum(group, func(p *Pairs) int { return p.Samples })))
	}
	return t.RenderMarkdown()
}

// RedisTable is the Table of libraries on Redis.
func RedisTable(all []Pairs, baseline string) string {
	return Table(all, func(string) string { return baseline },
		Column{Name: "sent", Decimals: 1, Of: (*servers.Load).Requests},
		Column{Name: "run", Decimals: 1, Of: (*servers.Load).Ran},
		Column{Name: "server µs", Decimals: 1, Of: (*servers.Load).ServerUs},
		Column{Name: "ratio of server µs", Of: (*servers.Load).ServerUs, Ratio: true},
		Column{Name: "allocations", Decimals: 1, Of: (*servers.Load).Allocations},
		Column{Name: "bytes", Of: (*servers.Load).Allocated},
		Column{Name: "goroutines", Decimals: 1, Of: (*servers.Load).Goroutines},
		Column{Name: "client µs", Of: (*servers.Load).ClientUs},
	)
}
