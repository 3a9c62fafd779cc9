// Cron runs a job once a tick, in one of many processes, also where their clocks differ.
//
//	go run ./examples/cron                           # three processes in one, in memory, with clocks that differ
//	go run ./examples/cron redis://localhost:6379    # one process, until Ctrl-C: run it in several terminals
//	go run ./examples/cron -skew 1.5s redis://localhost:6379
//
// Any URL of docs/urls.md will do. Kill a process in the midst of a job (-takes 3s, then kill -9), and another runs it when the
// lock's TTL is over, 30 s by default.
//
// What to copy is cron.go. For programs that use github.com/go-co-op/gocron there is integrations/gocron, which keeps no record, but each lock for a minimum.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/all" // so that the URL may name any backend
)

func main() {
	host, _ := os.Hostname()
	s := settings{out: os.Stdout}
	id := flag.String("id", fmt.Sprintf("%s/%d", host, os.Getpid()), "who this process is")
	skew := flag.Duration("skew", 0, "by how much this machine's clock is to be ahead, or, below 0, late")
	flag.DurationVar(&s.every, "every", time.Second, "from tick to tick")
	flag.DurationVar(&s.takes, "takes", 50*time.Millisecond, "how long the job takes")
	file := flag.String("record", filepath.Join(os.TempDir(), "locker-cron"), "file that all processes share; another for each lock server, as tokens of two cannot be compared")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: cron [flags] [URL]   (default: three processes on mem://cron, for three ticks)")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 1 {
		fmt.Fprintln(os.Stderr, "one URL at most, and flags come before the URL: -h tells them")
		os.Exit(2)
	}
	if s.every <= 0 {
		fmt.Fprintln(os.Stderr, "-every: has to be more than 0")
		os.Exit(2)
	}
	s.record = record(*file)
	// The first Ctrl-C, or a supervisor's SIGTERM, ends ctx, and what is held is released. A second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)

	var err error
	if flag.NArg() == 0 {
		err = s.demo(ctx, "mem://cron")
	} else {
		err = s.join(ctx, flag.Arg(0), *id, *skew)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// settings are those that all processes have in common.
type settings struct {
	every, takes time.Duration
	record       record
	out          io.Writer
	mu           sync.Mutex // of out
}

// join has this process be one of those that run the job, until ctx ends.
func (s *settings) join(ctx context.Context, url, id string, skew time.Duration) error {
	client, err := locker.Open(ctx, url, locker.WithMetadata(id))
	if err != nil {
		return err
	}
	defer client.Close()
	c := cron{lock: client.Mutex("cron"), record: s.record, every: s.every}
	c.now = func() time.Time { return time.Now().Add(skew) }
	c.say = func(format string, args ...any) { s.say(c.now(), id, format, args...) }
	c.run = func(ctx context.Context, _ time.Time) error {
		select {
		case <-time.After(s.takes):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return c.serve(ctx)
}

func (s *settings) say(now time.Time, id, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%s by the clock of %-6s %s\n", now.Format("15:04:05.00"), id, fmt.Sprintf(format, args...))
}

// demo has three processes with clocks of their own run a job that takes less time than their clocks differ, for three ticks.
func (s *settings) demo(ctx context.Context, url string) error {
	dir, err := os.MkdirTemp("", "cron")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s.record = record(filepath.Join(dir, "record"))
	// Half a tick earlier or later each of the three has looked at it.
	ctx, cancel := context.WithDeadline(ctx, time.Now().Truncate(s.every).Add(7*s.every/2))
	defer cancel()
	var all sync.WaitGroup
	var errs [3]error
	for i, skew := range []time.Duration{0, s.every * 3 / 10, -s.every * 3 / 10} {
		all.Go(func() { errs[i] = s.join(ctx, url, fmt.Sprintf("web-%d", i+1), skew) })
	}
	all.Wait()
	return errors.Join(errs[:]...)
}
