// Command waiters measures what it costs to wait for a lock: this library's beside others', on one
// Redis server that it starts itself on a free loopback port.
//
//	go run ./waiters -json waiters.json
//
// It prints three tables in GitHub's Markdown. In each round every library has its turn at every
// measurement, so that what else the machine does befalls all of them. Absolute times are good for
// one machine and one hour; compare what is in one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker/bench/internal/program"
	"github.com/go-locker/locker/bench/internal/redisserver"
)

type options struct {
	program.Options

	waiters  []int
	clients  int
	rounds   int
	duration time.Duration
	warmUp   time.Duration

	idle            time.Duration
	idleWaiters     int
	handoverWaiters int
}

func main() {
	program.Main("waiters", run)
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var waiters string
	f := flag.NewFlagSet("waiters", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&waiters, "waiters", "2,32,256,1024", "how many wait for one name, one cell each; none if empty")
	f.IntVar(&o.clients, "clients", 16, "over how many clients they are spread, at most")
	f.IntVar(&o.rounds, "rounds", 3, "rounds of the contended cells and of the hand-over")
	f.DurationVar(&o.duration, "duration", 5*time.Second, "how long a cell is measured")
	f.DurationVar(&o.warmUp, "warm-up", 2*time.Second, "how long it runs before that")
	f.DurationVar(&o.idle, "idle", 10*time.Second, "how long waiters wait behind one hold; 0 leaves this out")
	f.IntVar(&o.idleWaiters, "idle-waiters", 50, "how many wait behind it, each on a client of its own")
	f.IntVar(&o.handoverWaiters, "handover-waiters", 8, "how many wait at each hand-over; 0 leaves this out")
	if err := o.Parse(f, libraries, args); err != nil {
		return o, err
	}
	for n := range strings.SplitSeq(waiters, ",") {
		if n = strings.TrimSpace(n); n == "" {
			continue
		}
		count, err := strconv.Atoi(n)
		if err != nil {
			return o, fmt.Errorf("-waiters: %w", err)
		}
		o.waiters = append(o.waiters, count)
	}
	return o, o.check()
}

func (o options) check() error {
	for _, n := range o.waiters {
		if n < 1 {
			return fmt.Errorf("-waiters: %d is no number of waiters", n)
		}
	}
	if o.clients < 1 || o.rounds < 1 || o.idleWaiters < 1 || o.handoverWaiters < 0 {
		return errors.New("-clients, -rounds and -idle-waiters are at least 1, -handover-waiters at least 0")
	}
	if o.duration <= 0 || o.warmUp < 0 || o.idle < 0 {
		return errors.New("-duration is more than 0, -warm-up and -idle are not negative")
	}
	if o.idle >= ttl {
		return fmt.Errorf("-idle is less than the TTL of %v", ttl)
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	return o.Run(ctx, 1, stdout, stderr, o.measure)
}

func (o options) measure(
	ctx context.Context, servers redisserver.Servers, progress io.Writer,
) (program.Results, error) {
	r := newResults(servers[0], o)
	for round := range o.rounds {
		for _, waiters := range o.waiters {
			for _, l := range o.Libraries.Turn(round) {
				c, err := measureContended(ctx, servers, l, round, waiters, o)
				if err != nil {
					return nil, err
				}
				fmt.Fprintf(progress, "round %d of %d: %d waiters, %s: %.0f acquisitions/s\n",
					round+1, o.rounds, waiters, l.Name, c.Rate())
				r.Contended = append(r.Contended, c)
			}
		}
		if o.handoverWaiters == 0 {
			continue
		}
		for _, l := range o.Libraries.Turn(round) {
			h, err := measureHandover(ctx, servers, l, round, o)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(progress, "round %d of %d: hand-over, %s: %.0f µs\n", round+1, o.rounds, l.Name, h.P50Us)
			r.Handovers = append(r.Handovers, h)
		}
	}
	if o.idle == 0 {
		return r, nil
	}
	for _, l := range o.Libraries {
		i, err := measureIdle(ctx, servers, l, o)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(progress, "idle, %s: %d commands sent in %.1f s\n", l.Name, i.Waiting.Sent, i.Waiting.Seconds)
		r.Idle = append(r.Idle, i)
	}
	return r, nil
}
