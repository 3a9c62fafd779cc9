// Command postgres measures what a lock on PostgreSQL costs: this library's beside an advisory lock
// and beside a row that is locked for a transaction, each on a connection of its own, on a server
// that it starts itself and that writes to disk.
//
//	go run ./postgres -json postgres.json
//
// It prints a table in GitHub's Markdown. What is compared takes turns, so that what else the
// machine does befalls all of it. Absolute figures are good for one machine and one hour; compare
// what is in one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/pairs"
	"github.com/go-locker/locker/bench/internal/program"
	"github.com/go-locker/locker/bench/internal/servers"
)

type options struct {
	program.Options

	alone   pairs.Crowds
	waiters program.Counts
}

func main() { program.Main("postgres", run) }

var run = program.Measuring("postgres", libraries, func() program.Program { return &options{} })

// Flags adds those of this program.
func (o *options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.alone.Rounds, "rounds", 3, "rounds, of which the median counts")
	f.DurationVar(&o.alone.Duration, "duration", 2*time.Second, "how long a cell is measured")
	f.DurationVar(&o.alone.WarmUp, "warm-up", 2*time.Second, "how long it runs before that")
	o.alone.Goroutines = program.Counts{1, 16}
	f.Var((*program.Counts)(&o.alone.Goroutines), "alone", "how many goroutines take locks that nobody else wants, one cell each")
	o.waiters = program.Counts{32, 256}
	f.Var(&o.waiters, "waiters", "how many want one lock, one cell each")
}

// Check returns an error if something cannot be measured.
func (o *options) Check() error {
	if o.alone.Rounds < 1 || o.alone.Duration <= 0 || o.alone.WarmUp < 0 {
		return errors.New("-rounds is at least 1, -duration more than 0, -warm-up not negative")
	}
	return nil
}

// Measure measures all that was chosen.
func (o *options) Measure(ctx context.Context, progress io.Writer) (program.Results, error) {
	on, err := servers.Postgres(ctx)
	if err != nil {
		return nil, err
	}
	defer on.Stop()
	if err := createTable(ctx, on.Addrs[0]); err != nil {
		return nil, err
	}
	r := &Results{Setting: o.Libraries.Setting(on.Name)}
	if r.Apart, err = o.alone.Measure(ctx, o.Libraries, on, progress); err != nil {
		return nil, err
	}
	for round := range o.alone.Rounds {
		for _, waiters := range o.waiters {
			for _, l := range o.Libraries.Turn(round) {
				c, err := l.Measure(ctx, on, contend.Cell{
					Name:  l.LockName("contended", waiters, round),
					Round: round, Waiters: waiters, Clients: 1, WarmUp: o.alone.WarmUp, Duration: o.alone.Duration,
				})
				if err != nil {
					return nil, err
				}
				fmt.Fprintf(progress, "round %d of %d: %d waiters, %s: %.0f acquisitions/s\n",
					round+1, o.alone.Rounds, waiters, l.Name, c.Rate())
				r.Contended = append(r.Contended, c)
			}
		}
	}
	return r, nil
}

// createTable makes that of the rows which are locked.
func createTable(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE TABLE names (name text PRIMARY KEY)")
	return errors.Join(err, conn.Close(ctx))
}
