// Command consensus measures what a lock on servers that agree among themselves costs: this library's beside
// the recipes that come with the clients of etcd and ZooKeeper, and beside the bare requests that any lock needs,
// on servers that it starts itself on free loopback ports.
//
//	go run ./consensus -json consensus.json
//	go run ./consensus -servers 3 -waiters 8,64
//
// It prints tables in GitHub's Markdown. What is compared takes turns in short blocks, so that what else the
// machine does befalls all of it, and shares the settings of its client, which counts requests and bytes on its
// connections: that takes some time and some allocations, alike for all. A run takes some six minutes, with
// -only pairs less than one. Absolute times are good for one machine and one hour; compare what is in one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/go-locker/locker/bench/internal/kills"
	"github.com/go-locker/locker/bench/internal/pairs"
	"github.com/go-locker/locker/bench/internal/program"
)

// usualTTL is every hold's, and every session's.
const usualTTL = time.Minute

type options struct {
	program.Options

	only    *program.Parts
	servers int

	pairs pairs.Plan

	waiters                program.Counts
	longRounds, clients    int
	hold, warmUp, duration time.Duration

	killRounds, killWaiters int
	killTTL                 time.Duration
}

func main() {
	kills.Serve(libraries())
	program.Main("consensus", run)
}

var run = program.Measuring("consensus", libraries(), func() program.Program { return &options{} })

// Flags adds those of this program.
func (o *options) Flags(f *flag.FlagSet) {
	o.only = program.Only(f, "pairs", "contended", "kills")
	f.IntVar(&o.servers, "servers", 1, "how many servers each cluster has; clients of ZooKeeper use one of them")
	o.pairs.Flags(f)
	f.IntVar(&o.longRounds, "long-rounds", 3, "rounds of the contended cells")
	o.waiters = program.Counts{2, 32, 256}
	f.Var(&o.waiters, "waiters", "how many want one name, one cell each")
	f.IntVar(&o.clients, "clients", 4, "over how many clients they are spread, at most")
	f.DurationVar(&o.hold, "hold", time.Millisecond, "how long they hold it")
	f.DurationVar(&o.duration, "duration", 2*time.Second, "how long a cell is measured")
	f.DurationVar(&o.warmUp, "warm-up", time.Second, "how long it runs before that")
	f.IntVar(&o.killRounds, "kill-rounds", 3, "rounds in which processes are killed")
	f.IntVar(&o.killWaiters, "kill-waiters", 100, "how many wait then")
	f.DurationVar(&o.killTTL, "kill-ttl", 6*time.Second, "TTL and session time-out of what is killed")
}

// Check returns an error if something cannot be measured.
func (o *options) Check() error {
	if min(o.servers, o.longRounds, o.clients, o.killRounds, o.killWaiters) < 1 {
		return errors.New("-servers, -long-rounds, -clients, -kill-rounds and -kill-waiters are at least 1")
	}
	if len(o.waiters) == 0 {
		return errors.New("-waiters has a number, at least; -only leaves them out")
	}
	if o.duration <= 0 || o.warmUp < 0 || o.hold < 0 || o.killTTL < time.Second {
		return errors.New("-duration is more than 0, -kill-ttl at least 1s, -warm-up and -hold are not negative")
	}
	if o.hold > usualTTL/2 {
		return fmt.Errorf("-hold is at most half of the TTL of %v", usualTTL)
	}
	return o.pairs.Check()
}

// Measure measures all that was chosen.
func (o *options) Measure(ctx context.Context, progress io.Writer) (program.Results, error) {
	r := newResults(o)
	for _, s := range systems {
		if s.libraries = o.of(s); len(s.libraries) == 0 {
			continue
		}
		if err := o.measureSystem(ctx, s, r, progress); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// measureSystem adds to r what it measures of one system.
func (o *options) measureSystem(ctx context.Context, s system, r *Results, progress io.Writer) error {
	on, err := s.start(ctx, o.servers)
	if err != nil {
		return err
	}
	defer on.Stop()
	r.add(on.Name)
	for _, part := range o.only.Chosen() {
		switch part {
		case "pairs":
			var some []pairs.Pairs
			some, err = o.pairs.Measure(ctx, s.libraries, on, progress)
			r.Pairs = append(r.Pairs, some...)
		case "contended":
			err = o.measureContended(ctx, s, on, r, progress)
		case "kills":
			var some []kills.Kill
			some, err = kills.Plan{
				Libraries: s.locks(), Rounds: o.killRounds, Waiters: o.killWaiters, Clients: o.clients, TTL: o.killTTL,
			}.Measure(ctx, on.Addrs, progress)
			r.Kills = append(r.Kills, some...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
