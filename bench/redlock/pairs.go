package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/redisserver"
	"github.com/go-locker/locker/bench/internal/stats"
	"github.com/go-locker/locker/bench/internal/wire"
)

const (
	// Pairs at the beginning of a block that are not measured: threads and processors wake.
	unmeasured = 5
	// How long what a library leaves under way has to end, before the next has its turn.
	settle = 2 * time.Millisecond
)

// Pairs is what Lock and Unlock cost in one round, with nobody else.
type Pairs struct {
	Library string `json:"library"`
	Round   int    `json:"round"`
	Timing
	Load     redisserver.Load `json:"load"`     // with the pairs that are not measured
	LoadOf   int              `json:"loadOf"`   // how many pairs that is of
	ClientUs float64          `json:"clientUs"` // processor time of this process, of those pairs
}

// Timing sums up some pairs.
type Timing struct {
	Samples     int     `json:"samples"`
	PairP50Us   float64 `json:"pairP50Us"`
	PairP90Us   float64 `json:"pairP90Us"`
	PairMaxUs   float64 `json:"pairMaxUs"`
	LockP50Us   float64 `json:"lockP50Us"`
	LockP90Us   float64 `json:"lockP90Us"`
	UnlockP50Us float64 `json:"unlockP50Us"`
	UnlockP90Us float64 `json:"unlockP90Us"`
}

// samples are of Lock, of Unlock, and of both together.
type samples struct{ locks, unlocks, pairs []time.Duration }

func (s *samples) add(lock, unlock time.Duration) {
	s.locks, s.unlocks, s.pairs = append(s.locks, lock), append(s.unlocks, unlock), append(s.pairs, lock+unlock)
}

func (s *samples) timing() Timing {
	for _, all := range [][]time.Duration{s.locks, s.unlocks, s.pairs} {
		slices.Sort(all)
	}
	us := func(sorted []time.Duration, p float64) float64 {
		return stats.Microseconds(stats.Percentile(sorted, p))
	}
	return Timing{
		Samples:   len(s.pairs),
		PairP50Us: us(s.pairs, 50), PairP90Us: us(s.pairs, 90), PairMaxUs: us(s.pairs, 100),
		LockP50Us: us(s.locks, 50), LockP90Us: us(s.locks, 90),
		UnlockP50Us: us(s.unlocks, 50), UnlockP90Us: us(s.unlocks, 90),
	}
}

// pair locks and unlocks once.
func pair(ctx context.Context, lockIt contend.LockFunc) (lock, unlock time.Duration, err error) {
	start := time.Now()
	unlockIt, err := lockIt(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("lock: %w", err)
	}
	locked := time.Now()
	if err := unlockIt(ctx); err != nil {
		return 0, 0, fmt.Errorf("unlock: %w", err)
	}
	return locked.Sub(start), time.Since(locked), nil
}

// series is one library through all rounds: its client stays connected.
type series struct {
	library contend.Library
	client  *contend.Client
	sent    *wire.Tally

	samples  samples
	load     redisserver.Load
	loadOf   int
	clientUs float64
}

// open has what is done only once done: connections made, scripts sent.
func (s *series) open(ctx context.Context, servers redisserver.Servers, pairs int) error {
	s.sent = wire.NewTally()
	client, err := s.library.Open(servers.Addrs(), s.sent)
	if err != nil {
		return fmt.Errorf("%s: %w", s.library.Name, err)
	}
	s.client = client
	if err := s.block(ctx, servers, "pairs-first-"+s.library.Name, pairs); err != nil {
		client.Close()
		return err
	}
	s.sumUp(0)
	return nil
}

// block measures some pairs.
func (s *series) block(ctx context.Context, servers redisserver.Servers, name string, pairs int) error {
	lock := s.client.Waiter(name)
	before, err := servers.Usage(ctx, s.sent)
	if err != nil {
		return err
	}
	used := processorTime()
	for i := range unmeasured + pairs {
		lockTook, unlockTook, err := pair(ctx, lock)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if i >= unmeasured {
			s.samples.add(lockTook, unlockTook)
		}
	}
	contend.Sleep(ctx, settle)
	s.clientUs += stats.Microseconds(processorTime() - used)
	after, err := servers.Usage(ctx, s.sent)
	if err != nil {
		return err
	}
	s.load = s.load.Add(redisserver.LoadBetween(before, after))
	s.loadOf += unmeasured + pairs
	return nil
}

// sumUp ends a round.
func (s *series) sumUp(round int) Pairs {
	p := Pairs{
		Library: s.library.Name, Round: round, Timing: s.samples.timing(),
		Load: s.load, LoadOf: s.loadOf, ClientUs: s.clientUs,
	}
	s.samples, s.load, s.loadOf, s.clientUs = samples{}, redisserver.Load{}, 0, 0
	return p
}

// measurePairs has the libraries take turns, a block each, several times a round.
func measurePairs(ctx context.Context, servers redisserver.Servers, o options, progress io.Writer) ([]Pairs, error) {
	byName := make(map[string]*series)
	defer func() {
		for _, s := range byName {
			s.client.Close()
		}
	}()
	for _, l := range o.Libraries {
		s := &series{library: l}
		if err := s.open(ctx, servers, o.block); err != nil {
			return nil, err
		}
		byName[l.Name] = s
	}
	var all []Pairs
	for round := range o.rounds {
		for turn := range o.blocks {
			for _, l := range o.Libraries.Turn(round*o.blocks + turn) {
				name := fmt.Sprintf("pairs-%s-%d-%d", l.Name, round, turn)
				if err := byName[l.Name].block(ctx, servers, name, o.block); err != nil {
					return nil, err
				}
			}
		}
		for _, l := range o.Libraries {
			p := byName[l.Name].sumUp(round)
			fmt.Fprintf(progress, "round %d of %d: pairs, %s: %.0f µs\n", round+1, o.rounds, l.Name, p.PairP50Us)
			all = append(all, p)
		}
	}
	return all, nil
}
