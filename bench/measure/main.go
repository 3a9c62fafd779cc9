// Command measure measures what locks cost: this library's beside others', and beside the fewest
// requests that any lock needs, on servers that it starts itself on free loopback ports.
//
//	go run ./measure                          # everything, an hour on a machine that does nothing else
//	go run ./measure -only redis/apart,etcd   # one part of Redis, and all of etcd
//	go run ./measure -render                  # the page once more, from the figures of earlier runs
//
// The figures go to -json, where those of parts that are not measured stay, and from there to a
// page in Markdown, with a table for each part. Libraries take turns, so that what else the machine
// does befalls all of them. Absolute times are good for one machine and one hour; compare what is
// in one run.
package main

import (
	"context"
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
	measure  func(ctx context.Context, r *round) error
}

// round is what a part works with.
type round struct {
	*options
	on        *servers
	libraries []library
	add       func(cell string, l library, f figures)
}

// options say how much is measured.
type options struct {
	rounds, blocks, block int           // of pairs
	long                  int           // rounds of all else
	duration, warmUp      time.Duration // of a cell
	most                  int           // waiters, goroutines, locks or names
	idle, ttl, later      time.Duration
}

var (
	full = options{
		10, 6, 100, 3, 2 * time.Second, time.Second, 1_000_000, 10 * time.Second,
		6 * time.Second, 2 * time.Minute,
	}
	quick = options{
		1, 2, 10, 1, 300 * time.Millisecond, 100 * time.Millisecond, 8, time.Second,
		2 * time.Second, 100 * time.Millisecond,
	}
)

func main() {
	// go-redis says of each connection that it could not make what is measured anyway
	logging.Disable()
	serveKill()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "measure: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, progress io.Writer) error {
	f := flag.NewFlagSet("measure", flag.ContinueOnError)
	f.SetOutput(progress)
	file := f.String("json", "bench.json", "file of the figures")
	page := f.String("page", "", "file of the page; standard output if empty")
	chart := f.String("chart", "", "file of a chart, as SVG, of who waits on Redis; none if empty")
	only := f.String("only", "", "subjects or parts, such as redis/pairs,etcd; all if empty")
	note := f.String("note", "",
		"what is special about this run, such as: one processor; its figures get tables of their own")
	brief := f.Bool("quick", false, "a minute of everything, which says next to nothing")
	render := f.Bool("render", false, "measure nothing")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	o := &full
	if *brief {
		o = &quick
	}
	b, err := load(*file)
	if err != nil {
		return err
	}
	if !*render {
		if err := o.measure(ctx, b, strings.FieldsFunc(*only, func(r rune) bool { return r == ',' }),
			*note, progress); err != nil {
			return err
		}
		if err := b.save(*file); err != nil {
			return err
		}
	}
	if *chart != "" {
		if err := b.draw(*chart); err != nil {
			return err
		}
	}
	out := os.Stdout
	if *page != "" {
		if out, err = os.Create(*page); err != nil {
			return err
		}
		defer func() { _ = out.Close() }()
	}
	return b.print(out)
}

// measure replaces what b has of the parts that were chosen.
func (o *options) measure(ctx context.Context, b *book, only []string, note string,
	progress io.Writer,
) error {
	measured := 0
	for _, s := range subjects {
		var parts []part
		for _, p := range s.parts {
			if len(only) == 0 || slices.Contains(only, s.name) || slices.Contains(only, s.name+"/"+p.name) {
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
			return err
		}
	}
	if measured == 0 {
		return fmt.Errorf("nothing is called %s", strings.Join(only, ","))
	}
	return nil
}

func (o *options) measureSubject(ctx context.Context, b *book, s subject, parts []part, note string,
	progress io.Writer,
) error {
	on, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer on.stop()
	for _, p := range parts {
		t := b.fresh(s.name, p.name, note, on.name, s.libraries)
		r := &round{options: o, on: on, add: func(cell string, l library, f figures) {
			t.add(cell, l.name, f)
			fmt.Fprintf(progress, "%s/%s, %s, %s: %v\n", s.name, p.name, cell, l.name, f.text(t.What))
		}}
		for _, l := range s.libraries {
			if !slices.Contains(p.without, l.name) {
				r.libraries = append(r.libraries, l)
			}
		}
		if err := p.measure(ctx, r); err != nil {
			return fmt.Errorf("%s/%s: %w", s.name, p.name, err)
		}
	}
	return nil
}

// turn is the order of the libraries in a round: each comes first in its turn.
func (r *round) turn(n int) []library {
	n %= len(r.libraries)
	return slices.Concat(r.libraries[n:], r.libraries[:n])
}

// several calls do for each library in each of the long rounds.
func (r *round) several(do func(n int, l library) error) error {
	for n := range r.long {
		for _, l := range r.turn(n) {
			if err := do(n, l); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return nil
}

// upTo leaves out the counts that are more than is to be measured.
func (o *options) upTo(counts []int) []int {
	var some []int
	for _, n := range counts {
		if n = min(n, o.most); !slices.Contains(some, n) {
			some = append(some, n)
		}
	}
	return some
}
