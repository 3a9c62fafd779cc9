package gocron_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	cron "github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/election"
	"github.com/go-locker/locker/integrations/gocron"
	"github.com/go-locker/locker/internal/test/testwait"
)

// candidate is a process that is a candidate, until leave is called or the test ends.
func candidate(t *testing.T, c *locker.Client, opts ...locker.MutexOption) (e *gocron.Elector, leave func() error) {
	t.Helper()
	e = gocron.NewElector(election.New(c, "scheduler", opts...))
	ctx, cancel := context.WithCancel(t.Context())
	done := testwait.Go(func() error { return e.Lead(ctx, time.Second) })
	synctest.Wait()
	return e, func() error {
		cancel()
		return <-done
	}
}

func TestElector_theLeaderRunsTheJobs(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var leaders list[int]
		var leave []func() error
		for i := range 3 {
			e, l := candidate(t, client())
			leave = append(leave, l)
			start(t, cron.WithDistributedElector(e), e.Task(func(context.Context, uint64) error {
				leaders.add(i)
				return nil
			}), failures(noError(t)))
		}
		time.Sleep(2500 * time.Millisecond)
		require.NoError(t, leave[0]())
		time.Sleep(3 * time.Second)
		assert.Equal(t, []int{0, 0, 0, 1, 1, 1}, leaders.all())
		require.NoError(t, leave[2]())
		require.NoError(t, leave[1]())
	})
}

func TestElector_aTermEndsItsJobsAndWaitsForThem(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		e, leave := candidate(t, client())
		next, leaveNext := candidate(t, client())
		var failed list[error]
		var terms list[uint64]
		start(t, cron.WithDistributedElector(e), e.Task(func(ctx context.Context, term uint64) error {
			terms.add(term)
			<-ctx.Done()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			time.Sleep(time.Second)
			return nil // as if nothing had been
		}), failures(failed.add), cron.WithSingletonMode(cron.LimitModeReschedule))
		time.Sleep(time.Minute)
		left := testwait.Go(leave)
		synctest.Wait()
		require.Error(t, e.IsLeader(t.Context()), "at once")
		time.Sleep(999 * time.Millisecond)
		require.Error(t, next.IsLeader(t.Context()), "while the job goes on")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.NoError(t, <-left)
		require.NoError(t, next.IsLeader(t.Context()))
		require.ErrorContains(t, joined(&failed), "the term has ended")
		assert.Len(t, terms.all(), 1)
		assert.NotZero(t, terms.all()[0])
		require.NoError(t, leaveNext())
	})
}

func TestElector_aTermThatIsLostEndsItsJobs(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		e, leave := candidate(t, client(locker.WithTTL(5*time.Second), locker.WithoutRenewal()))
		began := time.Now()
		var failed list[error]
		start(t, cron.WithDistributedElector(e), e.Task(func(ctx context.Context, _ uint64) error {
			<-ctx.Done()
			assert.Less(t, time.Since(began), 4*time.Second, "when the reserve is left")
			return ctx.Err()
		}), failures(failed.add), cron.WithSingletonMode(cron.LimitModeReschedule))
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, joined(&failed), context.Canceled)
		require.NoError(t, leave())
	})
}

func TestElector_aJobEndsWithItsScheduler(t *testing.T) {
	type key struct{}
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		e, leave := candidate(t, client())
		s := start(t, cron.WithDistributedElector(e), e.Task(func(ctx context.Context, _ uint64) error {
			assert.Equal(t, "value", ctx.Value(key{}))
			<-ctx.Done()
			return nil
		}), failures(noError(t)), cron.WithContext(context.WithValue(t.Context(), key{}, "value")))
		time.Sleep(time.Second)
		require.NoError(t, s.Shutdown())
		require.NoError(t, e.IsLeader(t.Context()), "and the term goes on")
		require.NoError(t, leave())
	})
}

func TestElector_aJobThatComesTooLateIsNotRun(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		e := gocron.NewElector(election.New(client(), "scheduler"))
		var failed list[error]
		start(t, cron.WithGlobalJobOptions(), e.Task(func(context.Context, uint64) error { panic("run") }), failures(failed.add))
		synctest.Wait()
		require.ErrorIs(t, joined(&failed), locker.ErrNotHeld)
	})
}
