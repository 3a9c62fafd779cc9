package gocron_test

import (
	"context"
	"errors"
	"sync"
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

// tally counts the runs of each tick.
type tally struct {
	first time.Time

	mu   sync.Mutex
	runs map[int]int
}

func (y *tally) ran(now time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.runs[int((now.Sub(y.first)+every/2)/every)]++ // the nearest tick
}

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
// some ticks. It returns how often each tick ran.
func countTicks(t *testing.T, locks func(c *locker.Client, run func()) (cron.Locker, cron.Task)) (runs map[int]int) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		counted := &tally{first: time.Now().Add(every), runs: map[int]int{}}
		runs = counted.runs
		var running []cron.Scheduler
		for i := range schedulers {
			clock := late{clockwork.NewRealClock(), time.Duration(i) * skew}
			l, task := locks(client(), func() {
				counted.ran(clock.Now())
				time.Sleep(short)
			})
			s, err := cron.NewScheduler(cron.WithClock(clock), cron.WithDistributedLocker(l))
			require.NoError(t, err)
			_, err = s.NewJob(cron.DurationJob(every), task, cron.WithName("report"),
				cron.WithStartAt(cron.WithStartDateTime(counted.first)),
				cron.WithStopAt(cron.WithStopDateTime(counted.first.Add(time.Duration(ticks)*every-every/2))))
			require.NoError(t, err)
			s.Start()
			running = append(running, s)
		}
		time.Sleep(time.Until(counted.first.Add(time.Duration(ticks) * every)))
		for _, s := range running {
			require.NoError(t, s.Shutdown())
		}
	})
	return runs
}

func TestTicks_eachRunsOnceThoughTheClocksDiffer(t *testing.T) {
	runs := countTicks(t, func(c *locker.Client, run func()) (cron.Locker, cron.Task) {
		l := newLocker(t, c, minimum, noError(t))
		task := l.Task(func(context.Context, uint64) error { run(); return nil })
		return l, task
	})
	assert.Len(t, runs, ticks)
	for tick, n := range runs {
		assert.Equal(t, 1, n, "runs of tick %d", tick)
	}
}

// Without a minimum, a scheduler whose clock is late runs the tick once more.
func TestTicks_aLockWithoutAMinimumRunsThemAgain(t *testing.T) {
	all := 0
	for _, n := range countTicks(t, func(c *locker.Client, run func()) (cron.Locker, cron.Task) { return plain{c}, cron.NewTask(run) }) {
		all += n
	}
	assert.Greater(t, all, 3*ticks, "of %d ticks", ticks)
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
