// Command postgres measures what a lock on PostgreSQL costs: this library's beside an advisory lock and beside a row that is locked for a
// transaction, each on a connection of its own, on a server that it starts itself and that writes to disk.
//
//	go run ./postgres -json postgres.json
//
// It prints a table in GitHub's Markdown. What is compared takes turns, so that what else the machine does befalls all of it. Absolute
// figures are good for one machine and one hour; compare what is in one run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/bench/internal/program"
	"github.com/go-locker/locker/bench/internal/quorumserver"
)

type options struct {
	rounds         int
	duration       time.Duration
	warmUp         time.Duration
	alone, waiters program.Counts
	json           string
}

func main() { program.Main("postgres", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{alone: program.Counts{1, 16}, waiters: program.Counts{32, 256}}
	f := flag.NewFlagSet("postgres", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.rounds, "rounds", 3, "rounds, of which the median counts")
	f.DurationVar(&o.duration, "duration", 2*time.Second, "how long a cell is measured")
	f.DurationVar(&o.warmUp, "warm-up", 2*time.Second, "how long it runs before that")
	f.Var(&o.alone, "alone", "how many goroutines take locks that nobody else wants, one cell each")
	f.Var(&o.waiters, "waiters", "how many want one lock, one cell each")
	f.StringVar(&o.json, "json", "", "file for the raw figures of every round")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.rounds < 1 || o.duration <= 0 {
		return o, errors.New("there are no arguments, -rounds is at least 1, -duration more than 0")
	}
	return o, nil
}

// Cell is what was measured of one kind of lock in one case.
type Cell struct {
	Lock        string
	Goroutines  int
	OneName     bool
	Rates       []float64 // pairs a second, of each round
	Connections int       // the most that the server has had
}

func (c Cell) median() float64 {
	sorted := slices.Sorted(slices.Values(c.Rates))
	return sorted[len(sorted)/2]
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	server, err := quorumserver.Postgres()
	if err != nil {
		return err
	}
	defer server.Stop()
	url := "postgres://postgres@" + server.Addrs[0] + "/postgres?sslmode=disable"
	var cells []*Cell
	for _, n := range o.alone {
		for _, k := range kinds {
			cells = append(cells, &Cell{Lock: k.name, Goroutines: n})
		}
	}
	for _, n := range o.waiters {
		for _, k := range kinds {
			cells = append(cells, &Cell{Lock: k.name, Goroutines: n, OneName: true})
		}
	}
	for round := range o.rounds {
		for _, c := range cells {
			if err := c.measure(ctx, url, o.warmUp, o.duration); err != nil {
				return fmt.Errorf("%s, %d goroutines: %w", c.Lock, c.Goroutines, err)
			}
			fmt.Fprintf(stderr, "round %d of %d: %s, %d goroutines: %.0f pairs/s, %d connections\n",
				round+1, o.rounds, c.Lock, c.Goroutines, c.Rates[round], c.Connections)
		}
	}
	if o.json != "" {
		raw, err := json.MarshalIndent(cells, "", "\t")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(raw, '\n'), 0o644); err != nil {
			return err
		}
	}
	return write(stdout, cells)
}

func write(w io.Writer, cells []*Cell) error {
	_, err := fmt.Fprintf(w, "| goroutines | lock | pairs of Lock and Unlock a second (median; least to most) | connections |\n| --- | --- | --: | --: |\n")
	for _, c := range cells {
		of := "a name each"
		if c.OneName {
			of = "one name"
		}
		_, err = fmt.Fprintf(w, "| %d, %s | %s | %.0f (%.0f to %.0f) | %d |\n",
			c.Goroutines, of, c.Lock, c.median(), slices.Min(c.Rates), slices.Max(c.Rates), c.Connections)
	}
	return err
}

// measure adds a round.
func (c *Cell) measure(ctx context.Context, url string, warmUp, duration time.Duration) error {
	k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == c.Lock })]
	open, closeAll, err := k.open(ctx, url)
	if err != nil {
		return err
	}
	defer closeAll()
	var (
		pairs           atomic.Int64
		counting, ended atomic.Bool
		all             sync.WaitGroup
		failed          = make(chan error, c.Goroutines)
	)
	for i := range c.Goroutines {
		name := i
		if c.OneName {
			name = 0
		}
		lock, err := open(name)
		if err != nil {
			return err
		}
		all.Go(func() {
			for !ended.Load() {
				if err := lock(ctx); err != nil {
					failed <- err
					return
				}
				if counting.Load() {
					pairs.Add(1)
				}
			}
		})
	}
	time.Sleep(warmUp)
	counting.Store(true)
	began := time.Now()
	connections, err := connectionsOf(ctx, url)
	time.Sleep(duration - time.Since(began))
	counting.Store(false)
	c.Rates = append(c.Rates, float64(pairs.Load())/time.Since(began).Seconds())
	c.Connections = max(c.Connections, connections)
	ended.Store(true)
	all.Wait()
	close(failed)
	return errors.Join(err, <-failed)
}

// connectionsOf counts those of others.
func connectionsOf(ctx context.Context, url string) (n int, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	err = conn.QueryRow(ctx, "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'").Scan(&n)
	return n, errors.Join(err, conn.Close(ctx))
}
