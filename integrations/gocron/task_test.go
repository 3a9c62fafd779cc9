package gocron_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	cron "github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
)

const patience = testwait.Patience(time.Minute)

func TestTask_isGivenTokensThatRise(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var tokens list[uint64]
		for range 3 { // they take turns
			l := newLocker(t, client(), time.Millisecond*100, noError(t))
			start(t, cron.WithDistributedLocker(l), l.Task(func(_ context.Context, token uint64) error {
				tokens.add(token)
				return nil
			}), failures(noError(t)))
		}
		time.Sleep(9500 * time.Millisecond)
		assert.Len(t, tokens.all(), 10)
		assert.IsIncreasing(t, tokens.all())
	})
}

func TestTask_isToldThatItsLockIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var told, failed, causes list[error]
		l := newLocker(t, client(), time.Second, told.add, locker.WithTTL(3*time.Second), locker.WithoutRenewal())
		began := time.Now()
		start(t, cron.WithDistributedLocker(l), l.Task(func(ctx context.Context, _ uint64) error {
			<-ctx.Done()
			causes.add(context.Cause(ctx))
			assert.Less(t, time.Since(began), 3*time.Second)
			return nil // as if nothing had been
		}), failures(failed.add), cron.WithLimitedRuns(1))
		time.Sleep(4 * time.Second)
		require.ErrorIs(t, joined(&causes), locker.ErrLost)
		require.ErrorIs(t, joined(&failed), locker.ErrLost)
		require.EqualError(t, joined(&told), `locker: unlock "report": the lock was lost: it was not extended in time`)
	})
}

func TestTask_isRefusedWithoutAName(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var told list[error]
		l := newLocker(t, client(), time.Second, told.add)
		s, err := cron.NewScheduler(cron.WithDistributedLocker(l))
		require.NoError(t, err)
		_, err = s.NewJob(cron.DurationJob(time.Second), l.Task(func(context.Context, uint64) error { panic("run") }))
		require.NoError(t, err)
		s.Start()
		time.Sleep(1500 * time.Millisecond)
		require.ErrorContains(t, joined(&told), "gocron.WithName")
		require.NoError(t, s.Shutdown())
	})
}

func TestTask_isRefusedWithoutALock(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var told, failed list[error]
		l, other := newLocker(t, client(), time.Second, told.add), newLocker(t, client(), time.Second, noError(t))
		task := l.Task(func(context.Context, uint64) error { panic("run") })
		start(t, cron.WithDistributedLocker(other), task, failures(failed.add))
		start(t, cron.WithDistributedLocker(l), task, failures(failed.add), cron.WithDisabledDistributedJobLocker(true))
		synctest.Wait()
		require.ErrorContains(t, joined(&told), "gocron.WithDistributedLocker")
		assert.Len(t, told.all(), 2)
		assert.Len(t, failed.all(), 2)
	})
}

// What gocron gives a job's context is still there, and a scheduler that is started again has new ones.
func TestTask_hasTheContextOfItsJob(t *testing.T) {
	type key struct{}
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var runs atomic.Int32
		l := newLocker(t, client(), 100*time.Millisecond, noError(t))
		s := start(t, cron.WithDistributedLocker(l), l.Task(func(ctx context.Context, _ uint64) error {
			runs.Add(1)
			assert.Equal(t, "value", ctx.Value(key{}))
			return ctx.Err()
		}), cron.WithContext(context.WithValue(t.Context(), key{}, "value")), failures(noError(t)))
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, s.StopJobs())
		s.Start()
		time.Sleep(2 * time.Second)
		require.NoError(t, s.Shutdown())
		assert.Greater(t, runs.Load(), int32(2))
	})
}

// One job is delayed after its Lock, and another, of the same Locker, begins meanwhile.
func TestTask_hasTheLockOfItsOwnJob(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var runs list[time.Duration]
		l, began := newLocker(t, client(), 100*time.Millisecond, noError(t)), time.Now()
		task := l.Task(func(context.Context, uint64) error {
			runs.add(time.Since(began))
			return nil
		})
		start(t, cron.WithDistributedLocker(l), task, failures(noError(t)), cron.WithName("delayed"),
			cron.WithEventListeners(cron.BeforeJobRuns(func(uuid.UUID, string) { time.Sleep(200 * time.Millisecond) })))
		synctest.Wait()
		start(t, cron.WithDistributedLocker(l), task, failures(noError(t)))
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, []time.Duration{0, 200 * time.Millisecond}, runs.all())
	})
}

func TestTask_hasNoLockOfARunThatDidNotCallIt(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		l := newLocker(t, client(), 100*time.Millisecond, noError(t))
		var runs, skipped atomic.Int32
		start(t, cron.WithDistributedLocker(l), l.Task(func(context.Context, uint64) error {
			runs.Add(1)
			return nil
		}), failures(noError(t)), cron.WithEventListeners(cron.BeforeJobRunsSkipIfBeforeFuncErrors(func(uuid.UUID, string) error {
			if skipped.Add(1) <= 2 {
				return errors.New("not now")
			}
			return nil
		})))
		time.Sleep(4500 * time.Millisecond)
		assert.EqualValues(t, 3, runs.Load())
	})
}

func TestLocker_locksJobsOfPlainTasksToo(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var runs atomic.Int32
		l := newLocker(t, client(), 100*time.Millisecond, noError(t))
		start(t, cron.WithDistributedLocker(l), cron.NewTask(func() { runs.Add(1) }))
		time.Sleep(2500 * time.Millisecond)
		assert.EqualValues(t, 3, runs.Load())
	})
}

// A run is delayed after its Lock until that is lost, and another run of the job is granted a lock. Neither runs under a lock that has ended, and
// those after them are not affected.
func TestTask_aRunThatIsDelayedUntilItsLockIsLostIsNotRun(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var told, failed list[error]
		l := newLocker(t, client(), 100*time.Millisecond, told.add, locker.WithTTL(500*time.Millisecond), locker.WithoutRenewal())
		var tokens list[uint64]
		var delayed atomic.Bool
		s := start(t, cron.WithDistributedLocker(l), l.Task(func(ctx context.Context, token uint64) error {
			tokens.add(token)
			time.Sleep(100 * time.Millisecond)
			return ctx.Err()
		}), failures(failed.add), cron.WithEventListeners(cron.BeforeJobRuns(func(uuid.UUID, string) {
			if !delayed.Swap(true) {
				time.Sleep(600 * time.Millisecond)
			}
		})))
		time.Sleep(550 * time.Millisecond)
		require.NoError(t, s.Jobs()[0].RunNow())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, failed.all(), 2)
		require.ErrorIs(t, failed.all()[0], locker.ErrLost, "the second run")
		require.ErrorContains(t, failed.all()[1], "has no lock", "the first")
		assert.Len(t, tokens.all(), 2, "of the runs after these")
	})
}
