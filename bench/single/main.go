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

	pairs pairs.Plan

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

var run = program.Measuring("single", redislocks.All, func() program.Program { return &options{} })

// Flags adds those of this program.
func (o *options) Flags(f *flag.FlagSet) {
	o.only = program.Only(f, "pairs", "apart", "held", "names")
	o.pairs.Flags(f)
	f.IntVar(&o.crowds.Rounds, "long-rounds", 3, "rounds with many goroutines")
	o.crowds.Goroutines = program.Counts{64, 512}
	f.Var((*program.Counts)(&o.crowds.Goroutines), "goroutines", "how many share a client, each with a name of its own, one cell each")
	f.DurationVar(&o.crowds.Duration, "duration", 2*time.Second, "how long they are measured")
	f.DurationVar(&o.crowds.WarmUp, "warm-up", time.Second, "how long they run before that")
	o.held = program.Counts{10, 1000, 100000}
	f.Var(&o.held, "held", "how many locks one client holds, one cell each")
	f.DurationVar(&o.window, "held-for", redislocks.TTL, "how long their renewal is measured")
	f.DurationVar(&o.settling, "held-before", redislocks.TTL/2, "how long they are held before that")
	f.IntVar(&o.names, "names", 1_000_000, "how many names are locked once")
	f.DurationVar(&o.namesAfter, "names-after", 2*time.Minute, "how long after the last the server's memory is looked at again")
}

// Check returns an error if something cannot be measured.
func (o *options) Check() error {
	if min(o.crowds.Rounds, o.names) < 1 {
		return errors.New("-long-rounds and -names are at least 1")
	}
	if len(o.crowds.Goroutines) == 0 || len(o.held) == 0 {
		return errors.New("-goroutines and -held have a number each, at least; -only leaves either out")
	}
	if o.crowds.Duration <= 0 || o.window <= 0 || o.crowds.WarmUp < 0 || o.settling < 0 || o.namesAfter < 0 {
		return errors.New("-duration and -held-for are more than 0, -warm-up, -held-before and -names-after are not negative")
	}
	return o.pairs.Check()
}

// Measure measures all that was chosen.
func (o *options) Measure(ctx context.Context, progress io.Writer) (program.Results, error) {
	on, err := servers.Redis(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer on.Stop()
	r := newResults(on, o)
	for _, part := range o.only.Chosen() {
		switch part {
		case "pairs":
			r.Pairs, err = o.pairs.Measure(ctx, o.Libraries, on, progress)
		case "apart":
			r.Apart, err = o.crowds.Measure(ctx, o.Libraries, on, progress)
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
