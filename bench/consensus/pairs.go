package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/pairs"
	"github.com/go-locker/locker/bench/internal/quorumserver"
	"github.com/go-locker/locker/bench/internal/wire"
)

const (
	// Pairs at the beginning of a block that are not measured: threads and processors wake, and the first
	// of all makes what outlives a hold.
	unmeasured = 5
	// How long what a library leaves under way has to end, before the next has its turn.
	settle = 2 * time.Millisecond
)

// Pairs is what Lock and Unlock cost in one round, with nobody else.
type Pairs struct {
	Library string `json:"library"`
	Round   int    `json:"round"`
	pairs.Timing
	Load Load `json:"load"`
}

func (p *Pairs) each(total float64) float64 { return total / float64(max(p.Samples, 1)) }

// series is one library through all rounds: its client stays connected.
type series struct {
	library contend.Library
	client  *contend.Client
	lock    contend.LockFunc
	sent    *wire.Tally

	samples pairs.Samples
	load    Load
}

func openSeries(l contend.Library, addrs []string) (*series, error) {
	s := &series{library: l, sent: wire.NewTally()}
	var err error
	if s.client, err = l.Connect(addrs, s.sent); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	s.lock = s.client.Waiter(lockName("pairs", l.Name))
	return s, nil
}

// block measures some pairs.
func (s *series) block(ctx context.Context, n int) error {
	var before look
	for i := range unmeasured + n {
		if i == unmeasured {
			before = lookAt(s.sent)
		}
		lockTook, unlockTook, err := pairs.Once(ctx, s.lock)
		if err != nil {
			return fmt.Errorf("%s: %w", s.library.Name, err)
		}
		if i >= unmeasured {
			s.samples.Add(lockTook, unlockTook)
		}
	}
	contend.Sleep(ctx, settle)
	s.load = s.load.add(lookAt(s.sent).since(before))
	return nil
}

// sumUp ends a round.
func (s *series) sumUp(round int) Pairs {
	p := Pairs{Library: s.library.Name, Round: round, Timing: s.samples.Timing(), Load: s.load}
	s.samples, s.load = pairs.Samples{}, Load{}
	return p
}

// measurePairs has the libraries take turns, a block each, several times a round.
func (o options) measurePairs(ctx context.Context, s system, servers *quorumserver.Servers, r *Results, progress io.Writer) error {
	byName := make(map[string]*series)
	defer func() {
		for _, one := range byName {
			one.client.Close()
		}
	}()
	for _, l := range s.libraries {
		one, err := openSeries(l, servers.Addrs)
		if err != nil {
			return err
		}
		byName[l.Name] = one
		if err := one.block(ctx, o.block); err != nil {
			return err
		}
		one.sumUp(0)
	}
	for round := range o.rounds {
		for turn := range o.blocks {
			for _, l := range s.libraries.Turn(round*o.blocks + turn) {
				if err := byName[l.Name].block(ctx, o.block); err != nil {
					return err
				}
			}
		}
		for _, l := range s.libraries {
			p := byName[l.Name].sumUp(round)
			fmt.Fprintf(progress, "round %d of %d: pairs, %s: %.0f µs\n", round+1, o.rounds, l.Name, p.PairP50Us)
			r.Pairs = append(r.Pairs, p)
		}
	}
	return nil
}
