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
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/redisserver"
	"github.com/go-locker/locker/bench/internal/report"
)

type options struct {
	libraries contend.Libraries
	only      []string
	nodes     int

	rounds, blocks, block int // of pairs

	longRounds int // of all else
	healthy    int
	away       time.Duration

	contenders, clients, goroutines int
	hold, think, warmUp, duration   time.Duration

	json  string
	quiet bool
}

// parts are what can be measured.
var parts = []string{"pairs", "minority", "contended", "apart"}

func main() {
	logging.Disable() // go-redis says of each connection that it could not make what is measured anyway
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "redlock:", err)
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var names, only string
	f := flag.NewFlagSet("redlock", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&names, "libraries", libraries.Names(), "which to measure")
	f.StringVar(&only, "only", strings.Join(parts, ","), "what to measure of them")
	f.IntVar(&o.nodes, "nodes", 5, "how many servers")
	f.IntVar(&o.rounds, "rounds", 10, "rounds of pairs")
	f.IntVar(&o.blocks, "blocks", 6, "how often the libraries take turns in such a round")
	f.IntVar(&o.block, "block", 100, "pairs of Lock and Unlock at each turn")
	f.IntVar(&o.longRounds, "long-rounds", 3, "rounds of all else")
	f.IntVar(&o.healthy, "healthy", 1000, "pairs before a minority is away")
	f.DurationVar(&o.away, "away", 750*time.Millisecond, "for how long pairs begin while it is; one does, however long it takes")
	f.IntVar(&o.contenders, "contenders", 32, "how many want one name")
	f.IntVar(&o.clients, "clients", 8, "over how many clients they are spread, at most")
	f.DurationVar(&o.hold, "hold", time.Millisecond, "how long they hold it")
	f.DurationVar(&o.think, "think", 20*time.Millisecond, "and how long they do not want it then")
	f.IntVar(&o.goroutines, "goroutines", 64, "how many share a client, each with a name of its own")
	f.DurationVar(&o.duration, "duration", 2*time.Second, "how long contenders and goroutines are measured")
	f.DurationVar(&o.warmUp, "warm-up", time.Second, "how long they run before that")
	f.StringVar(&o.json, "json", "", "file for the raw figures of every round")
	f.BoolVar(&o.quiet, "quiet", false, "do not say what is being measured")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var err error
	if o.libraries, err = libraries.Named(names); err != nil {
		return o, err
	}
	for part := range strings.SplitSeq(only, ",") {
		part = strings.TrimSpace(part)
		if !slices.Contains(parts, part) {
			return o, fmt.Errorf("-only: %q is none of %s", part, strings.Join(parts, ","))
		}
		o.only = append(o.only, part)
	}
	return o, o.check()
}

func (o options) check() error {
	if o.nodes < 3 {
		return errors.New("-nodes is at least 3: a majority of fewer survives no failure")
	}
	for _, n := range []int{
		o.rounds, o.blocks, o.block, o.longRounds, o.healthy, o.contenders, o.clients, o.goroutines,
	} {
		if n < 1 {
			return errors.New("-rounds, -blocks, -block, -long-rounds, -healthy, -contenders, -clients and -goroutines are at least 1")
		}
	}
	if o.away <= 0 || o.duration <= 0 || o.warmUp < 0 || o.hold < 0 || o.think < 0 {
		return errors.New("-away and -duration are more than 0, -warm-up, -hold and -think are not negative")
	}
	if o.hold > ttl/2 {
		return fmt.Errorf("-hold is at most half of the TTL of %v", ttl)
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	servers, err := redisserver.Start(ctx, o.nodes)
	if err != nil {
		return err
	}
	defer servers.Stop()
	progress := stderr
	if o.quiet {
		progress = io.Discard
	}
	results := newResults(servers, o)
	if err := results.measure(ctx, servers, o, progress); err != nil {
		if ctx.Err() != nil { // which stopped the servers: whatever failed then did so because of that
			return context.Cause(ctx)
		}
		return err
	}
	if o.json != "" {
		if err := report.WriteJSON(o.json, results); err != nil {
			return err
		}
	}
	return results.print(stdout)
}

func (r *Results) measure(ctx context.Context, servers redisserver.Servers, o options, progress io.Writer) error {
	for _, part := range o.only {
		var err error
		switch part {
		case "pairs":
			r.Pairs, err = measurePairs(ctx, servers, o, progress)
		case "minority":
			r.Minorities, err = measureMinorities(ctx, servers, o, progress)
		case "contended":
			r.Contended, err = measureContended(ctx, servers, o, progress)
		case "apart":
			r.Apart, err = measureApart(ctx, servers, o, progress)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
