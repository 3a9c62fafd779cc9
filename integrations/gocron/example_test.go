package gocron_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	cron "github.com/go-co-op/gocron/v2"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/election"
	"github.com/go-locker/locker/integrations/gocron"
	_ "github.com/go-locker/locker/memory" // mem://
)

func ExampleLocker() {
	client, err := locker.Open(context.Background(), "mem://example")
	if err != nil {
		panic(err)
	}
	defer client.Close()

	// Clocks here differ by less than 10 s, and the job runs once an hour.
	locks, err := gocron.NewLocker(client, 10*time.Second, func(err error) { slog.Error("report", "err", err) })
	if err != nil {
		panic(err)
	}
	s, err := cron.NewScheduler(cron.WithDistributedLocker(locks))
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	report := locks.Task(func(ctx context.Context, token uint64) error {
		defer close(done)
		fmt.Println("runs, with a token:", token > 0) // ctx ends if the lock is lost
		return nil
	})
	_, err = s.NewJob(cron.DurationJob(time.Hour), report, cron.WithName("report"), cron.WithStartAt(cron.WithStartImmediately()))
	if err != nil {
		panic(err)
	}
	s.Start()
	<-done
	if err := s.Shutdown(); err != nil {
		panic(err)
	}
	// Output: runs, with a token: true
}

func ExampleElector() {
	client, err := locker.Open(context.Background(), "mem://example")
	if err != nil {
		panic(err)
	}
	defer client.Close()

	elector := gocron.NewElector(election.New(client, "scheduler"))
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() { left <- elector.Lead(ctx, 5*time.Second) }()

	s, err := cron.NewScheduler(cron.WithDistributedElector(elector))
	if err != nil {
		panic(err)
	}
	terms := make(chan uint64)
	report := elector.Task(func(ctx context.Context, term uint64) error {
		select {
		case terms <- term:
			return nil
		case <-ctx.Done(): // the term is over
			return ctx.Err()
		}
	})
	_, err = s.NewJob(cron.DurationJob(10*time.Millisecond), report, cron.WithName("report"))
	if err != nil {
		panic(err)
	}
	s.Start()
	fmt.Println("runs, in a term:", <-terms > 0)
	if err := s.Shutdown(); err != nil {
		panic(err)
	}
	leave()
	if err := <-left; err != nil {
		panic(err)
	}
	// Output: runs, in a term: true
}
