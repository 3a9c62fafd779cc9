package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/redisserver"
	"github.com/go-locker/locker/bench/internal/stats"
	"github.com/go-locker/locker/bench/internal/wire"
)

// Apart is how many pairs goroutines do that share a client, each with a name of its own.
type Apart struct {
	Library    string           `json:"library"`
	Round      int              `json:"round"`
	Goroutines int              `json:"goroutines"`
	Pairs      int64            `json:"pairs"`
	Load       redisserver.Load `json:"load"`
	ClientUs   float64          `json:"clientUs"` // processor time of this process
	Errors     int64            `json:"errors"`
	Error      string           `json:"error,omitempty"`
}

func (a *Apart) rate() float64 { return float64(a.Pairs) / a.Load.Seconds }

func (a *Apart) each(total float64) float64 { return total / float64(max(a.Pairs, 1)) }

func measureApart(ctx context.Context, servers redisserver.Servers, o options, progress io.Writer) ([]Apart, error) {
	var all []Apart
	for round := range o.longRounds {
		for _, l := range o.without(ctxName).Turn(round) {
			a, err := measureApartOnce(ctx, servers, l, round, o)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(progress, "round %d of %d: %d goroutines, %s: %.0f pairs/s\n",
				round+1, o.longRounds, o.goroutines, l.Name, a.rate())
			all = append(all, a)
		}
	}
	return all, nil
}

// crowd is the goroutines of one cell.
type crowd struct {
	measuring     atomic.Bool
	over          atomic.Bool
	pairs, errors atomic.Int64
	first         atomic.Pointer[string] // error
}

func (c *crowd) run(ctx context.Context, lock contend.LockFunc) {
	for !c.over.Load() && ctx.Err() == nil {
		_, _, err := pair(ctx, lock)
		switch {
		case err == nil && c.measuring.Load():
			c.pairs.Add(1)
		case err != nil:
			text := err.Error()
			c.first.CompareAndSwap(nil, &text)
			c.errors.Add(1)
			contend.Sleep(ctx, settle)
		}
	}
}

func measureApartOnce(
	ctx context.Context, servers redisserver.Servers, l contend.Library, round int, o options,
) (Apart, error) {
	a := Apart{Library: l.Name, Round: round, Goroutines: o.goroutines}
	sent := wire.NewTally()
	client, err := l.Open(servers.Addrs(), sent)
	if err != nil {
		return a, fmt.Errorf("%s: %w", l.Name, err)
	}
	defer client.Close()
	var c crowd
	var wg sync.WaitGroup
	for i := range o.goroutines {
		lock := client.Waiter(fmt.Sprintf("apart-%s-%d-%d", l.Name, round, i))
		wg.Go(func() { c.run(ctx, lock) })
	}
	err = a.window(ctx, servers, sent, &c, o)
	c.over.Store(true)
	if err := errors.Join(err, contend.AwaitAll(&wg)); err != nil {
		return a, fmt.Errorf("%s: %w", l.Name, err)
	}
	a.Pairs, a.Errors = c.pairs.Load(), c.errors.Load()
	if text := c.first.Load(); text != nil {
		a.Error = *text
	}
	return a, nil
}

func (a *Apart) window(ctx context.Context, servers redisserver.Servers, sent *wire.Tally, c *crowd, o options) error {
	if !contend.Sleep(ctx, o.warmUp) {
		return context.Cause(ctx)
	}
	before, err := servers.Usage(ctx, sent)
	if err != nil {
		return err
	}
	used := processorTime()
	c.measuring.Store(true)
	passed := contend.Sleep(ctx, o.duration)
	c.measuring.Store(false)
	a.ClientUs = stats.Microseconds(processorTime() - used)
	if !passed {
		return context.Cause(ctx)
	}
	after, err := servers.Usage(ctx, sent)
	a.Load = redisserver.LoadBetween(before, after)
	return err
}
