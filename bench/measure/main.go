// Command measure measures what locks cost: this library's beside others', and beside the fewest
// requests that any lock needs, on servers that it starts itself on free loopback ports.
//
//	go run ./measure                          # everything: six minutes of a machine that does nothing else
//	go run ./measure -rounds 10               # more of them
//	go run ./measure -only redis/apart,etcd   # one part of Redis, and all of etcd
//	go run ./measure -render                  # the page once more, from the figures of earlier runs
//
// The figures go to -json, where those of parts that are not measured stay, and from there to a
// page in Markdown, with a table for each part. Libraries take turns, so that other load on the
// machine affects all of them. Absolute times are good for one machine and one hour; compare the
// figures of one run.
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
)

// subject is one kind of server, the locks there, and what is measured of them.
type subject struct {
	name, title string
	start       func(ctx context.Context) (*servers, error)
	libraries   []library
	parts       []part
}

// part is one table of the page.
type part struct {
	name  string
	about string // printed above the table
	// baseline is the library to which ratios are; none if empty.
	baseline string
	without  []string // libraries that this part says nothing of
	measure  cell
	counts   []int
}

// cell measures one library in one round, with n goroutines, waiters, locks or names.
type cell = func(ctx context.Context, r *round, n, turn int, l library) error

// round is what a part works with.
type round struct {
	*options
	on        *servers
	libraries []library
	add       func(cell string, l library, f figures)
}

// options say how much is measured.
type options struct {
	rounds           int
	duration, warmUp time.Duration // of a cell
	most             int           // waiters, goroutines, locks or names
	idle             time.Duration // a third of the TTL of the holder of many locks
}

func main() {
	// go-redis says of each connection that it could not make what is measured anyway
	logging.Disable()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "measure: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	file := flag.String("json", "bench.json", "file of the figures")
	page := flag.String("page", "", "file of the page, which also goes to standard output")
	chart := flag.String("chart", "", "file of a chart, as SVG, of who waits on Redis; none if empty")
	only := flag.String("only", "", "subjects or parts, such as redis/pairs,etcd; all if empty")
	note := flag.String("note", "",
		"what is special about this run, such as: one processor; its figures get tables of their own")
	rounds := flag.Int("rounds", 3, "of each cell")
	render := flag.Bool("render", false, "measure nothing")
	flag.Parse()
	o := options{
		rounds: *rounds, duration: 600 * time.Millisecond, warmUp: 300 * time.Millisecond, most: 1_000_000, idle: 5 * time.Second,
	}
	b, err := load(*file)
	if err != nil {
		return err
	}
	var failed error // what the other parts came to is kept
	if !*render {
		failed = o.measure(ctx, b, strings.FieldsFunc(*only, func(r rune) bool { return r == ',' }),
			*note, os.Stderr)
		if ctx.Err() != nil {
			return failed
		}
		if err := b.save(*file); err != nil {
			return errors.Join(failed, err)
		}
	}
	if *chart != "" {
		if err := b.draw(*chart); err != nil {
			return err
		}
	}
	text := b.print()
	fmt.Print(text)
	if *page != "" {
		failed = errors.Join(failed, os.WriteFile(*page, []byte(text), 0o644))
	}
	return failed
}

// measure replaces what b has of the parts that were chosen.
func (o *options) measure(ctx context.Context, b *book, only []string, note string,
	progress io.Writer,
) error {
	measured := 0
	var failures []error
	for _, s := range subjects {
		var parts []part
		for _, p := range s.parts {
			if len(only) == 0 || slices.Contains(only, s.name) ||
				slices.Contains(only, p.name) || slices.Contains(only, s.name+"/"+p.name) {
				parts = append(parts, p)
			}
		}
		if len(parts) == 0 {
			continue
		}
		measured += len(parts)
		if err := o.measureSubject(ctx, b, s, parts, note, progress); err != nil {
			if ctx.Err() != nil { // which stopped the servers: whatever failed then did so because of that
				return context.Cause(ctx)
			}
			failures = append(failures, err)
		}
	}
	if measured == 0 {
		return fmt.Errorf("nothing is called %s", strings.Join(only, ","))
	}
	return errors.Join(failures...)
}

func (o *options) measureSubject(ctx context.Context, b *book, s subject, parts []part, note string,
	progress io.Writer,
) error {
	on, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer on.stop()
	var failures []error
	for _, p := range parts {
		t := b.fresh(s.name, p.name, note, on.name, s.libraries)
		r := &round{options: o, on: on}
		r.add = func(cell string, l library, f figures) {
			t.add(cell, l.name, f)
			fmt.Fprintf(progress, "%s/%s, %s, %s: %v\n", s.name, p.name, cell, l.name, f.text(t.What))
		}
		for _, l := range s.libraries {
			if !slices.Contains(p.without, l.name) {
				r.libraries = append(r.libraries, l)
			}
		}
		if err := r.run(ctx, p); err != nil {
			failures = append(failures, fmt.Errorf("%s/%s: %w", s.name, p.name, err))
			fmt.Fprintf(progress, "failed: %v\n", failures[len(failures)-1])
		}
	}
	return errors.Join(failures...)
}

// turn returns the order of the libraries in round n: each comes first in one of them.
func (r *round) turn(n int) []library {
	n %= len(r.libraries)
	return slices.Concat(r.libraries[n:], r.libraries[:n])
}

// run measures a part with each of its counts, up to round.most, for each library in each round.
func (r *round) run(ctx context.Context, p part) error {
	var done []int
	for _, n := range p.counts {
		if n = min(n, r.most); slices.Contains(done, n) {
			continue
		}
		done = append(done, n)
		for turn := range r.rounds {
			for _, l := range r.turn(turn) {
				if err := p.measure(ctx, r, n, turn, l); err != nil {
					return fmt.Errorf("%s, %d: %w", l.name, n, err)
				}
			}
		}
	}
	return nil
}
