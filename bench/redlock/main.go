// Command redlock measures what a lock on a majority of Redis servers costs: this library's beside redsync,
// on servers that it starts itself on free loopback ports.
//
//	go run ./redlock -json redlock.json
//
// It prints tables in GitHub's Markdown. Libraries take turns in short blocks, so that what else the machine
// does befalls all of them. A run takes less than four minutes, with -only pairs half a minute. Absolute
// times are good for one machine and one hour; compare what is in one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/go-locker/locker/bench/internal/pairs"
	"github.com/go-locker/locker/bench/internal/program"
	"github.com/go-locker/locker/bench/internal/servers"
)

type options struct {
	program.Options

	only  *program.Parts
	nodes int

	pairs pairs.Plan

	longRounds  int // of all else
	healthy     int
	unreachable time.Duration

	contenders, clients, goroutines int
	hold, think, warmUp, duration   time.Duration
}

func main() {
	logging.Disable() // go-redis says of each connection that it could not make what is measured anyway
	program.Main("redlock", run)
}

var run = program.Measuring("redlock", libraries, func() program.Program { return &options{} })

// Flags adds those of this program.
func (o *options) Flags(f *flag.FlagSet) {
	o.only = program.Only(f, "pairs", "minority", "contended", "apart")
	f.IntVar(&o.nodes, "nodes", 5, "how many servers")
	o.pairs.Flags(f)
	f.IntVar(&o.longRounds, "long-rounds", 3, "rounds of all else")
	f.IntVar(&o.healthy, "healthy", 1000, "pairs before a minority is unreachable")
	f.DurationVar(&o.unreachable, "unreachable", 750*time.Millisecond, "for how long pairs begin while it is; one does, however long it takes")
	f.IntVar(&o.contenders, "contenders", 32, "how many want one name")
	f.IntVar(&o.clients, "clients", 8, "over how many clients they are spread, at most")
	f.DurationVar(&o.hold, "hold", time.Millisecond, "how long they hold it")
	f.DurationVar(&o.think, "think", 20*time.Millisecond, "and how long they do not want it then")
	f.IntVar(&o.goroutines, "goroutines", 64, "how many share a client, each with a name of its own")
	f.DurationVar(&o.duration, "duration", 2*time.Second, "how long contenders and goroutines are measured")
	f.DurationVar(&o.warmUp, "warm-up", time.Second, "how long they run before that")
}

// Check returns an error if something cannot be measured.
func (o *options) Check() error {
	if o.nodes < 3 {
		return errors.New("-nodes is at least 3: a majority of fewer survives no failure")
	}
	if min(o.longRounds, o.healthy, o.contenders, o.clients, o.goroutines) < 1 {
		return errors.New("-long-rounds, -healthy, -contenders, -clients and -goroutines are at least 1")
	}
	if o.unreachable <= 0 || o.duration <= 0 || o.warmUp < 0 || o.hold < 0 || o.think < 0 {
		return errors.New("-unreachable and -duration are more than 0, -warm-up, -hold and -think are not negative")
	}
	if o.hold > usualTTL/2 {
		return fmt.Errorf("-hold is at most half of the TTL of %v", usualTTL)
	}
	return o.pairs.Check()
}

// Measure measures all that was chosen.
func (o *options) Measure(ctx context.Context, progress io.Writer) (program.Results, error) {
	on, err := servers.Redis(ctx, o.nodes)
	if err != nil {
		return nil, err
	}
	defer on.Stop()
	r := newResults(on, o)
	for _, part := range o.only.Chosen() {
		switch part {
		case "pairs":
			r.Pairs, err = o.pairs.Measure(ctx, o.Libraries, on, progress)
		case "minority":
			r.Minorities, err = measureMinorities(ctx, on, o, progress)
		case "contended":
			r.Contended, err = measureContended(ctx, on, o, progress)
		case "apart":
			r.Apart, err = pairs.Crowds{
				Rounds: o.longRounds, Goroutines: []int{o.goroutines}, WarmUp: o.warmUp, Duration: o.duration,
			}.Measure(ctx, o.without(ctxName), on, progress)
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}
