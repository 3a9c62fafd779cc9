package gocron_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	cron "github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/election"
	"github.com/go-locker/locker/integrations/gocron"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
)

const (
	schedulers = 5
	ticks      = 20
	every      = 1750 * time.Millisecond
	minimum    = time.Second
	skew       = 20 * time.Millisecond // from the clock of one to that of the next
	short      = 5 * time.Millisecond  // what the job takes
)

// late is a clock that is late.
type late struct {
	clockwork.Clock

	by time.Duration
}

func (c late) Now() time.Time { return c.Clock.Now().Add(-c.by) }

// noError is an onError for where there must be none.
func noError(t *testing.T) func(error) {
	return func(err error) { t.Errorf("told: %v", err) }
}

// plain is the simplest adapter: it unlocks as soon as the job has ended.
type plain struct{ client *locker.Client }

func (p plain) Lock(ctx context.Context, key string) (cron.Lock, error) {
	return p.client.Mutex(key).TryAcquire(ctx)
}

// countTicks has five schedulers, each with a Client and a clock of its own, run a short job for
// some ticks. It returns which tick each run was for, in order.
func countTicks(t *testing.T, locks func(c *locker.Client, run func()) (cron.Locker, cron.Task)) []int {
	var runs list[int]
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		first := time.Now().Add(every)
		end := first.Add(ticks*every - every/2)
		for i := range schedulers {
			clock := late{clockwork.NewRealClock(), time.Duration(i) * skew}
			l, task := locks(client(), func() {
				runs.add(int((clock.Now().Sub(first) + every/2) / every)) // the nearest tick
				time.Sleep(short)
			})
			s, err := cron.NewScheduler(cron.WithClock(clock), cron.WithDistributedLocker(l))
			require.NoError(t, err)
			_, err = s.NewJob(cron.DurationJob(every), task, cron.WithName("report"),
				cron.WithStartAt(cron.WithStartDateTime(first)), cron.WithStopAt(cron.WithStopDateTime(end)))
			require.NoError(t, err)
			s.Start()
			t.Cleanup(func() { require.NoError(t, s.Shutdown()) })
		}
		time.Sleep(time.Until(end) + every/2)
	})
	return slices.Sorted(slices.Values(runs.all()))
}

func TestTicks_eachRunsOnceThoughTheClocksDiffer(t *testing.T) {
	var each []int
	for tick := range ticks {
		each = append(each, tick)
	}
	assert.Equal(t, each, countTicks(t, func(c *locker.Client, run func()) (cron.Locker, cron.Task) {
		l := newLocker(t, c, minimum, noError(t))
		return l, l.Task(func(context.Context, uint64) error { run(); return nil })
	}))
}

// Without a minimum, a scheduler whose clock is late runs the tick once more.
func TestTicks_aLockWithoutAMinimumRunsThemAgain(t *testing.T) {
	runs := countTicks(t, func(c *locker.Client, run func()) (cron.Locker, cron.Task) {
		return plain{c}, cron.NewTask(run)
	})
	assert.Greater(t, len(runs), 3*ticks, "of %d ticks", ticks)
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

func TestTask_isRefusedWithoutALockOrATerm(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var told, failed list[error]
		l, other := newLocker(t, client(), time.Second, told.add), newLocker(t, client(), time.Second, noError(t))
		run := func(context.Context, uint64) error { panic("run") }
		start(t, cron.WithDistributedLocker(other), l.Task(run), failures(failed.add))
		start(t, cron.WithDistributedLocker(l), l.Task(run), failures(failed.add), cron.WithDisabledDistributedJobLocker(true))
		synctest.Wait()
		require.ErrorContains(t, joined(&told), "gocron.WithDistributedLocker")
		assert.Len(t, told.all(), 2)
		assert.Len(t, failed.all(), 2)
		e := gocron.NewElector(election.New(client(), "scheduler"))
		start(t, cron.WithGlobalJobOptions(), e.Task(run), failures(failed.add))
		synctest.Wait()
		require.ErrorIs(t, joined(&failed), locker.ErrNotHeld)
	})
}

// What gocron gives a job's context is still there, the context ends with the scheduler, and that of
// a scheduler that is started again has not ended. The lock is free at once, and the term goes on.
func TestTask_hasTheContextOfItsJob(t *testing.T) {
	type key struct{}
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var causes list[error]
		run := func(ctx context.Context, _ uint64) error {
			assert.Equal(t, "value", ctx.Value(key{}))
			require.NoError(t, ctx.Err())
			<-ctx.Done()
			causes.add(context.Cause(ctx))
			return nil
		}
		value := cron.WithContext(context.WithValue(t.Context(), key{}, "value"))
		l := newLocker(t, client(), 100*time.Millisecond, noError(t))
		e, leave := candidate(t, client())
		for _, s := range []cron.Scheduler{
			start(t, cron.WithDistributedLocker(l), l.Task(run), value, failures(noError(t))),
			start(t, cron.WithDistributedElector(e), e.Task(run), value, failures(noError(t))),
		} {
			time.Sleep(500 * time.Millisecond)
			require.NoError(t, s.StopJobs())
			s.Start()
			time.Sleep(2 * time.Second)
			require.NoError(t, s.Shutdown())
			require.ErrorIs(t, joined(&causes), context.Canceled)
			assert.GreaterOrEqual(t, len(causes.all()), 2)
			causes = list[error]{}
		}
		_, err := newLocker(t, client(), time.Second, noError(t)).Lock(t.Context(), "report")
		require.NoError(t, err, "at once")
		require.NoError(t, e.IsLeader(t.Context()), "and the term goes on")
		require.NoError(t, leave())
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
