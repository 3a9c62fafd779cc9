// Pluggable runs each job of a plan once, in as many processes as there are, with locks of a backend that the user
// chooses. The work is done by package scheduler, which imports no backend.
//
//	go run -C examples/pluggable .                                        # in memory: two workers in one process
//	go run -C examples/pluggable . -locks redis://localhost:6379          # on Redis, by go-redis
//	go run -C examples/pluggable . -locks redigo://localhost:6379         # on Redis, by redigo
//	go run -C examples/pluggable . -locks etcd://localhost:2379           # on etcd
//	go run -C examples/pluggable . -locks zookeeper://localhost:2181      # on ZooKeeper
//	go run -C examples/pluggable . -locks redlock://host1,host2,host3     # refused: Redlock's tokens rise only while clocks are sane
//
// The backend is chosen by the flag, the environment or a file:
//
//	PLUGGABLE_LOCKS=etcd://localhost:2379 go run -C examples/pluggable .
//	go run -C examples/pluggable . -config pluggable.yaml
//
// For several processes give them a ledger in common, a directory, and a server:
//
//	go run -C examples/pluggable . -locks redis://localhost:6379 -ledger /tmp/ledger
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/all" // so that the URL may name any backend
	"github.com/go-locker/locker/examples/pluggable/scheduler"
)

func main() {
	// Ctrl-C ends ctx; what is held is released on the way out.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	c, err := configure(os.Args[1:], os.Getenv, os.Stderr)
	if err == nil {
		err = run(ctx, c, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run has some workers go through the plan at the same time, each as a process of its own would: with its own Client.
func run(ctx context.Context, c config, out io.Writer) error {
	clients, err := openAll(ctx, c)
	defer func() {
		for _, client := range clients {
			_ = client.Close()
		}
	}()
	if err != nil {
		return err
	}
	done, remove, err := openLedger(c.Ledger)
	if err != nil {
		return err
	}
	defer remove()
	say := newSayer(out)
	scheme, _, _ := strings.Cut(c.Locks, "://") // the rest may hold a password
	say("locks by %s://, says %s", scheme, c.from)

	errs := make([]error, c.Workers)
	var all sync.WaitGroup
	for i, client := range clients {
		all.Go(func() {
			errs[i] = work(ctx, client, done, c.Jobs, func(format string, args ...any) {
				say("worker %d of process %d %s", i+1, os.Getpid(), fmt.Sprintf(format, args...))
			})
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func openAll(ctx context.Context, c config) (clients []*locker.Client, err error) {
	for range c.Workers {
		// The ledger relies on tokens that rise: a backend that does not promise them is refused here, at the start.
		client, err := locker.Open(ctx, c.Locks, locker.WithPrefix("pluggable"), locker.Require(locker.Fencing))
		if err != nil {
			return clients, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// work is where the backend and the library meet.
func work(ctx context.Context, client *locker.Client, done ledger, plan []string, say func(string, ...any)) error {
	s := scheduler.New(func(name string) locker.Locker { return client.Mutex(name) }, done)
	ran, err := s.Run(ctx, jobs(plan, say)...)
	say("has run %d of %d jobs", len(ran), len(plan))
	return err
}

func jobs(names []string, say func(string, ...any)) []scheduler.Job {
	plan := make([]scheduler.Job, len(names))
	for i, name := range names {
		plan[i] = scheduler.Job{Name: name, Run: func(ctx context.Context) error {
			say("runs %q", name)
			select { // it takes a while
			case <-time.After(100 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}
	}
	return plan
}

// newSayer returns a function that prints one line at a time.
func newSayer(out io.Writer) func(format string, args ...any) {
	var mu sync.Mutex
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
}
