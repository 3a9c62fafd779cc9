// Command waiters measures what it costs to wait for a lock: this library's beside others', on one
// Redis server that it starts itself on a free loopback port.
//
//	go run ./waiters -json waiters.json
//
// It prints five tables in GitHub's Markdown. In each round every library has its turn at every
// measurement, so that what else the machine does befalls all of them. Absolute times are good for
// one machine and one hour; compare what is in one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-locker/locker/bench/internal/kills"
	"github.com/go-locker/locker/bench/internal/program"
	"github.com/go-locker/locker/bench/internal/redislocks"
	"github.com/go-locker/locker/bench/internal/servers"
)

type options struct {
	program.Options

	waiters  program.Counts
	clients  program.Counts
	rounds   int
	duration time.Duration
	warmUp   time.Duration

	idle            time.Duration
	idleWaiters     int
	handoverWaiters int
	drain           int
	killWaiters     int
	killTTL         time.Duration
}

func main() {
	kills.Serve(redislocks.Waiting)
	program.Main("waiters", run)
}

var run = program.Measuring("waiters", redislocks.Waiting, func() program.Program { return &options{} })

// Flags adds those of this program.
func (o *options) Flags(f *flag.FlagSet) {
	o.waiters = program.Counts{2, 32, 256, 1024}
	f.Var(&o.waiters, "waiters", "how many wait for one name, one cell each; none if empty")
	o.clients = program.Counts{1, 16, 64}
	f.Var(&o.clients, "clients", "over how many clients they are spread, at most, one cell each; the rest takes the most")
	f.IntVar(&o.rounds, "rounds", 3, "rounds of the contended cells and of the hand-over")
	f.DurationVar(&o.duration, "duration", 3*time.Second, "how long a cell is measured")
	f.DurationVar(&o.warmUp, "warm-up", time.Second, "how long it runs before that")
	f.DurationVar(&o.idle, "idle", 10*time.Second, "how long waiters wait behind one hold; 0 leaves this out")
	f.IntVar(&o.idleWaiters, "idle-waiters", 50, "how many wait behind it, each on a client of its own")
	f.IntVar(&o.handoverWaiters, "handover-waiters", 8, "how many wait at each hand-over; 0 leaves this out")
	f.IntVar(&o.drain, "drain", 50, "how many ask at the same moment, once each; 0 leaves this out")
	f.IntVar(&o.killWaiters, "kill-waiters", 100, "how many wait when a process is killed; 0 leaves this out")
	f.DurationVar(&o.killTTL, "kill-ttl", 6*time.Second, "TTL of the lock that it held, or waited for")
}

// Check returns an error if something cannot be measured.
func (o *options) Check() error {
	if len(o.clients) == 0 || o.rounds < 1 || o.idleWaiters < 1 || o.handoverWaiters < 0 || o.drain < 0 || o.killWaiters < 0 {
		return errors.New("-clients has a number, -rounds and -idle-waiters are at least 1, -handover-waiters, -drain and -kill-waiters at least 0")
	}
	if o.duration <= 0 || o.warmUp < 0 || o.idle < 0 || o.killTTL < time.Second {
		return errors.New("-duration is more than 0, -kill-ttl at least 1s, -warm-up and -idle are not negative")
	}
	if o.idle >= redislocks.TTL {
		return fmt.Errorf("-idle is less than the TTL of %v", redislocks.TTL)
	}
	return nil
}

// Measure measures all that was chosen.
func (o *options) Measure(ctx context.Context, progress io.Writer) (program.Results, error) {
	on, err := servers.Redis(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer on.Stop()
	r := newResults(on, o)
	for round := range o.rounds {
		for _, cell := range o.cells(round) {
			for _, l := range o.Libraries.Turn(round) {
				c, err := measureContended(ctx, on, l, cell)
				if err != nil {
					return nil, err
				}
				fmt.Fprintf(progress, "round %d of %d: %d waiters on %d clients, %s: %.0f acquisitions/s\n",
					round+1, o.rounds, c.Waiters, c.Clients, l.Name, c.Rate())
				r.Contended = append(r.Contended, c)
			}
		}
		if err := o.measureTurns(ctx, on, round, r, progress); err != nil {
			return nil, err
		}
	}
	if o.killWaiters > 0 {
		if r.Kills, err = (kills.Plan{
			Libraries: o.Libraries, Rounds: o.rounds, Waiters: o.killWaiters, Clients: slices.Max(o.clients), TTL: o.killTTL,
		}).Measure(ctx, on.Addrs, progress); err != nil {
			return nil, err
		}
	}
	if o.idle == 0 {
		return r, nil
	}
	for _, l := range o.Libraries {
		i, err := measureIdle(ctx, on, l, o)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(progress, "idle, %s: %d commands sent in %.1f s\n", l.Name, i.Waiting.Sent, i.Waiting.Seconds)
		r.Idle = append(r.Idle, i)
	}
	return r, nil
}

// measureTurns is a round of what is not done for so long.
func (o *options) measureTurns(ctx context.Context, on *servers.Servers, round int, r *Results, progress io.Writer) error {
	for _, l := range o.Libraries.Turn(round) {
		if o.handoverWaiters > 0 {
			h, err := measureHandover(ctx, on, l, round, o)
			if err != nil {
				return err
			}
			fmt.Fprintf(progress, "round %d of %d: hand-over, %s: %.0f µs\n", round+1, o.rounds, l.Name, h.P50Us)
			r.Handovers = append(r.Handovers, h)
		}
		if o.drain > 0 {
			d, err := measureDrain(ctx, on, l, round, o)
			if err != nil {
				return err
			}
			fmt.Fprintf(progress, "round %d of %d: drain, %s: %.2f s\n", round+1, o.rounds, l.Name, d.Seconds)
			r.Drains = append(r.Drains, d)
		}
	}
	return nil
}
