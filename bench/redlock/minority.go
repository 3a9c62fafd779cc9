package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/pairs"
	"github.com/go-locker/locker/bench/internal/servers"
)

// Minority is what Lock and Unlock cost before, and while as many nodes are unreachable as may be.
type Minority struct {
	Library string `json:"library"`
	Round   int    `json:"round"`
	Fault   string `json:"fault"`
	Nodes   int    `json:"nodes"` // that are unreachable

	Healthy     pairs.Timing `json:"healthy"`
	Unreachable pairs.Timing `json:"unreachable"`
	Errors      int          `json:"errors"` // while they were unreachable
	Error       string       `json:"error,omitempty"`
}

func (m *Minority) ratio() float64 { return m.Unreachable.PairP50Us / max(m.Healthy.PairP50Us, 1) }

// fault makes a node unreachable, and reachable again.
type fault struct {
	name                 string
	unreachable, restore func(context.Context, *servers.RedisServer) error
}

var faults = []fault{
	{
		"stopped",
		func(ctx context.Context, s *servers.RedisServer) error { return s.Freeze(ctx) },
		func(ctx context.Context, s *servers.RedisServer) error { return s.Thaw(ctx) },
	},
	{
		"killed",
		func(_ context.Context, s *servers.RedisServer) error { s.Kill(); return nil },
		func(ctx context.Context, s *servers.RedisServer) error { return s.Restart(ctx) },
	},
}

func measureMinorities(ctx context.Context, on *servers.Servers, o *options, progress io.Writer) ([]Minority, error) {
	var all []Minority
	for round := range o.longRounds {
		for _, f := range faults {
			for _, l := range o.Libraries.Turn(round) {
				m, err := measureMinority(ctx, on, l, f, round, o)
				if err != nil {
					return nil, err
				}
				fmt.Fprintf(progress, "round %d of %d: %d %s, %s: %.0f µs, before that %.0f µs\n",
					round+1, o.longRounds, m.Nodes, f.name, l.Name, m.Unreachable.PairP50Us, m.Healthy.PairP50Us)
				all = append(all, m)
			}
		}
	}
	return all, nil
}

func measureMinority(
	ctx context.Context, on *servers.Servers, l contend.Library, f fault, round int, o *options,
) (Minority, error) {
	m := Minority{Library: l.Name, Round: round, Fault: f.name, Nodes: (len(on.Redis) - 1) / 2}
	s, err := pairs.OpenSeries(ctx, on, l, o.pairs.Block)
	if err != nil {
		return m, err
	}
	if err := s.Block(ctx, l.LockName(f.name, round, "before"), o.healthy); err != nil {
		s.Client.Close()
		return m, err
	}
	m.Healthy = s.SumUp(round).Timing

	unreachable := minorityOf(on.Redis, m.Nodes, round)
	if err := each(ctx, unreachable, f.unreachable); err != nil {
		s.Client.Close()
		return m, err
	}
	m.whileAway(ctx, s.Client.Waiter(l.LockName(f.name, round)), o)
	// What hangs does not go on when they are back, nor arrives in another library's turn.
	s.Client.Close()
	return m, errors.Join(context.Cause(ctx), each(ctx, unreachable, f.restore))
}

// minorityOf is n of them, others in another round.
func minorityOf(all []*servers.RedisServer, n, round int) []*servers.RedisServer {
	var some []*servers.RedisServer
	for i := range n {
		some = append(some, all[(round+i)%len(all)])
	}
	return some
}

func each(ctx context.Context, some []*servers.RedisServer, do func(context.Context, *servers.RedisServer) error) error {
	for _, s := range some {
		if err := do(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// whileAway measures as many pairs as begin in a while, and so at least one.
func (m *Minority) whileAway(ctx context.Context, lock contend.LockFunc, o *options) {
	var s pairs.Samples
	for end := time.Now().Add(o.unreachable); time.Now().Before(end) && ctx.Err() == nil; {
		lockTook, unlockTook, err := pairs.Once(ctx, lock)
		if err == nil {
			s.Add(lockTook, unlockTook)
			continue
		}
		m.Errors++
		if m.Error == "" {
			m.Error = err.Error()
		}
		contend.Sleep(ctx, pairs.Settle)
	}
	m.Unreachable = s.Timing()
}
