// Command single measures what locks cost on one Redis server, where nobody waits for one: this library's beside others',
// and beside the scripts that any such lock needs at least, on a server that it starts itself on a free loopback port.
//
//	go run ./single -json single.json
//	go run ./single -only held
//
// It prints tables in GitHub's Markdown. Libraries take turns, so that what else the machine does befalls all of them. A
// run takes a quarter of an hour, without "held" six minutes. Absolute times are good for one machine and one hour; compare what
// is in one run.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/go-locker/locker/bench/internal/pairs"
	"github.com/go-locker/locker/bench/internal/program"
	"github.com/go-locker/locker/bench/internal/redislocks"
	"github.com/go-locker/locker/bench/internal/servers"
)

type options struct {
	program.Options

	only *program.Parts

	rounds, blocks, block int // of pairs

	crowds           pairs.Crowds
	held             program.Counts
	window, settling time.Duration
	names            int
	namesAfter       time.Duration
}

func main() {
	logging.Disable() // go-redis says of each connection that it could not make what is measured anyway
	program.Main("single", run)
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("single", flag.ContinueOnError)
	f.SetOutput(stderr)
	o.only = program.Only(f, "pairs", "apart", "held", "names")
	f.IntVar(&o.rounds, "rounds", 10, "rounds of pairs")
	f.IntVar(&o.blocks, "blocks", 6, "how often the libraries take turns in such a round")
	f.IntVar(&o.block, "block", 100, "pairs of Lock and Unlock at each turn")
	f.IntVar(&o.crowds.Rounds, "long-rounds", 3, "rounds with many goroutines")
	goroutines := program.Counts{64, 512}
	f.Var(&goroutines, "goroutines", "how many share a client, each with a name of its own, one cell each")
	f.DurationVar(&o.crowds.Duration, "duration", 2*time.Second, "how long they are measured")
	f.DurationVar(&o.crowds.WarmUp, "warm-up", time.Second, "how long they run before that")
	o.held = program.Counts{10, 1000, 100000}
	f.Var(&o.held, "held", "how many locks one client holds, one cell each")
	f.DurationVar(&o.window, "held-for", redislocks.TTL, "how long their renewal is measured")
	f.DurationVar(&o.settling, "held-before", redislocks.TTL/2, "how long they are held before that")
	f.IntVar(&o.names, "names", 1_000_000, "how many names are locked once")
	f.DurationVar(&o.namesAfter, "names-after", 2*time.Minute, "how long after the last the server's memory is looked at again")
	if err := o.Parse(f, redislocks.All, args); err != nil {
		return o, err
	}
	o.crowds.Libraries, o.crowds.Goroutines = o.Libraries, goroutines
	return o, o.check()
}

func (o options) check() error {
	for _, n := range []int{o.rounds, o.blocks, o.block, o.crowds.Rounds, o.names} {
		if n < 1 {
			return errors.New("-rounds, -blocks, -block, -long-rounds and -names are at least 1")
		}
	}
	if len(o.crowds.Goroutines) == 0 || len(o.held) == 0 {
		return errors.New("-goroutines and -held have a number each, at least; -only leaves either out")
	}
	if o.crowds.Duration <= 0 || o.window <= 0 || o.crowds.WarmUp < 0 || o.settling < 0 || o.namesAfter < 0 {
		return errors.New("-duration and -held-for are more than 0, -warm-up, -held-before and -names-after are not negative")
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	return o.Run(ctx, stdout, stderr, o.measure)
}

func (o options) measure(ctx context.Context, progress io.Writer) (program.Results, error) {
	on, err := servers.Redis(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer on.Stop()
	r := newResults(on, o)
	for _, part := range o.only.Chosen() {
		switch part {
		case "pairs":
			r.Pairs, err = pairs.Plan{
				Libraries: o.Libraries, Rounds: o.rounds, Blocks: o.blocks, Block: o.block,
			}.Measure(ctx, on, progress)
		case "apart":
			r.Apart, err = o.crowds.Measure(ctx, on, progress)
		case "held":
			r.Held, err = o.measureHeld(ctx, on, progress)
		case "names":
			r.Names, err = o.measureNames(ctx, on, progress)
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}
