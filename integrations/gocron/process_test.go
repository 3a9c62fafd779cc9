//go:build unix

package gocron_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	cron "github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/election"
	"github.com/go-locker/locker/integrations/gocron"
	"github.com/go-locker/locker/internal/test/child"
)

const envURL = "LOCKER_GOCRON_URL"

func init() {
	child.Register("locker", serveLocker)
	child.Register("elector", serveElector)
}

// look is the function of a job that looks when it is told to, before anything else, at whether it is over.
func look(over func(ctx context.Context) bool) func(context.Context, uint64) error {
	return func(ctx context.Context, token uint64) error {
		fmt.Println("runs", token)
		in := bufio.NewScanner(os.Stdin)
		in.Scan()
		fmt.Println("looks", over(ctx))
		return nil // as if nothing had been
	}
}

// runOnce runs the job on the scheduler, says how that failed, and ends.
func runOnce(t testing.TB, option cron.SchedulerOption, task cron.Task) {
	t.Helper()
	failed := make(chan error, 1)
	s, err := cron.NewScheduler(option)
	require.NoError(t, err)
	job, err := s.NewJob(cron.DurationJob(time.Hour), task, cron.WithName("report"), failures(func(err error) { failed <- err }))
	require.NoError(t, err)
	s.Start()
	require.NoError(t, job.RunNow())
	fmt.Println("failed", errors.Is(<-failed, locker.ErrLost))
	require.NoError(t, s.Shutdown())
}

func serveLocker(t testing.TB) {
	c, err := locker.Open(t.Context(), os.Getenv(envURL))
	require.NoError(t, err)
	told := make(chan error, 1)
	l, err := gocron.NewLocker(c, minimum, func(err error) { told <- err })
	require.NoError(t, err)
	runOnce(t, cron.WithDistributedLocker(l), l.Task(look(func(ctx context.Context) bool { return ctx.Err() != nil })))
	fmt.Println("told", errors.Is(<-told, locker.ErrLost))
	require.NoError(t, c.Close())
}

func serveElector(t testing.TB) {
	c, err := locker.Open(t.Context(), os.Getenv(envURL))
	require.NoError(t, err)
	e := gocron.NewElector(election.New(c, "report"))
	go func() { _ = e.Lead(t.Context(), time.Second) }()
	for e.IsLeader(t.Context()) != nil {
		time.Sleep(time.Millisecond)
	}
	runOnce(t, cron.WithDistributedElector(e), e.Task(look(func(ctx context.Context) bool {
		leads := e.IsLeader(ctx)
		return leads != nil && ctx.Err() != nil
	})))
	fmt.Println("told", e.IsLeader(t.Context()) != nil)
	require.NoError(t, c.Close())
}

// A process is stopped while its job runs, and another runs the job. When the first wakes, its job's first look tells it.
func TestProcess_aJobWhoseProcessIsStoppedIsToldWhenItWakes(t *testing.T) {
	for _, role := range []string{"locker", "elector"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			url := redisURL(t, "stopped-"+role)
			p := child.Start(t, role, envURL+"="+url)
			first, err := strconv.ParseUint(p.Says("runs")[0], 10, 64)
			require.NoError(t, err)
			p.Stop()
			p.Tell("look") // what it reads first when it wakes

			c, err := locker.Open(t.Context(), url)
			require.NoError(t, err)
			defer c.Close()
			tokens := make(chan uint64, 1)
			l := newLocker(t, c, minimum, logged(t))
			s, err := cron.NewScheduler(cron.WithDistributedLocker(l))
			require.NoError(t, err)
			_, err = s.NewJob(cron.DurationJob(100*time.Millisecond), l.Task(func(ctx context.Context, token uint64) error {
				tokens <- token
				<-ctx.Done()
				return nil
			}), cron.WithName("report"), cron.WithSingletonMode(cron.LimitModeReschedule))
			require.NoError(t, err)
			s.Start()
			assert.Greater(t, <-tokens, first)
			p.Continue()
			lost := fmt.Sprint(role == "locker") // to an Elector the reserve may be the cause
			assert.Equal(t, "true", p.Says("looks")[0])
			assert.Contains(t, []string{"true", lost}, p.Says("failed")[0])
			assert.Equal(t, []string{"true"}, p.Says("told"))
			require.NoError(t, s.Shutdown())
		})
	}
}
