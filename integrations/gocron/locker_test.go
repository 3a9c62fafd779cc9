package gocron_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	cron "github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/integrations/gocron"
	"github.com/go-locker/locker/memory"

	"github.com/go-locker/locker/internal/test/testwait"
)

// bubble runs f in a bubble, with a function that makes Clients of one space.
func bubble(t *testing.T, f func(t *testing.T, client func(...locker.Option) *locker.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, func(opts ...locker.Option) *locker.Client {
			return testwait.Closed(locker.New(memory.NewDriver(memory.InSpace(t.Name())), opts...))(t)
		})
	})
}

func newLocker(t *testing.T, c *locker.Client, minimum time.Duration, onError func(error), opts ...locker.MutexOption) *gocron.Locker {
	t.Helper()
	l, err := gocron.NewLocker(c, minimum, onError, opts...)
	require.NoError(t, err)
	return l
}

// list collects what several goroutines add.
type list[T any] struct {
	mu  sync.Mutex
	its []T
}

func (l *list[T]) add(one T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.its = append(l.its, one)
}

func (l *list[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.its)
}

// joined returns them as one error.
func joined(l *list[error]) error { return errors.Join(l.all()...) }

// start starts a scheduler of one job that runs every second, at once first. It is shut down when the test ends.
func start(t *testing.T, l cron.SchedulerOption, task cron.Task, opts ...cron.JobOption) cron.Scheduler {
	t.Helper()
	s, err := cron.NewScheduler(l)
	require.NoError(t, err)
	// Shutdown waits in a loop, in which no time passes in a bubble: so the contexts of jobs end before it, with the test.
	opts = append([]cron.JobOption{cron.WithName("report"), cron.WithContext(t.Context()), cron.WithStartAt(cron.WithStartImmediately())}, opts...)
	_, err = s.NewJob(cron.DurationJob(time.Second), task, opts...)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { _ = s.Shutdown() })
	return s
}

// failures has fail get the errors of runs that gocron counts as failed.
func failures(fail func(error)) cron.JobOption {
	return cron.WithEventListeners(cron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { fail(err) }))
}

func TestNewLocker_refuses(t *testing.T) {
	c := testwait.Closed(locker.Open(t.Context(), "mem://"))(t)
	for _, minimum := range []time.Duration{0, -time.Second} {
		_, err := gocron.NewLocker(c, minimum, noError(t))
		require.ErrorContains(t, err, "must be above 0: longer than the clocks")
	}
	_, err := gocron.NewLocker(c, time.Second, nil)
	require.ErrorContains(t, err, "onError is nil")
	_, err = gocron.NewLocker(c, time.Second, noError(t), locker.WithTTL(0))
	require.ErrorContains(t, err, "TTL 0s")
}

func TestLocker_aLockThatFailsIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		var told list[error]
		c := client()
		l := newLocker(t, c, time.Second, told.add)
		require.NoError(t, c.Close())
		var skipped list[error]
		start(t, cron.WithDistributedLocker(l), l.Task(func(context.Context, uint64) error { panic("without a lock") }),
			cron.WithEventListeners(cron.AfterLockError(func(_ uuid.UUID, _ string, err error) { skipped.add(err) })))
		synctest.Wait()
		require.ErrorIs(t, joined(&skipped), locker.ErrClosed)
		require.ErrorIs(t, joined(&told), locker.ErrClosed)
	})
}

func TestLocker_aLockOfAJobThatIsStoppedIsNotTold(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := newLocker(t, client(), time.Second, noError(t)).Lock(ctx, "report")
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestLocker_unlocksThoughTheSchedulerShutsDown(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		l := newLocker(t, client(), time.Second, noError(t))
		var cause list[error]
		s := start(t, cron.WithDistributedLocker(l), l.Task(func(ctx context.Context, _ uint64) error {
			<-ctx.Done()
			cause.add(context.Cause(ctx))
			return nil
		}))
		time.Sleep(5 * time.Second)
		require.NoError(t, s.Shutdown())
		require.ErrorIs(t, joined(&cause), context.Canceled)
		_, err := newLocker(t, client(), time.Second, noError(t)).Lock(t.Context(), "report")
		require.NoError(t, err, "at once")
	})
}

// A job that is still running when its Client is closed keeps its lock until it has returned.
func TestClose_waitsForAJob(t *testing.T) {
	bubble(t, func(t *testing.T, client func(...locker.Option) *locker.Client) {
		c := client()
		l := newLocker(t, c, time.Second, func(error) {}) // later runs are told that the Client is closed
		running := make(chan struct{})
		var began sync.Once
		var over atomic.Bool
		s := start(t, cron.WithDistributedLocker(l), cron.NewTask(func() {
			began.Do(func() { close(running) })
			time.Sleep(3 * time.Second)
			over.Store(true)
		}))
		<-running
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		time.Sleep(2 * time.Second) // the minimum is over
		_, err := newLocker(t, client(), time.Second, noError(t)).Lock(t.Context(), "report")
		require.ErrorIs(t, err, locker.ErrHeld)
		require.NoError(t, <-closed)
		assert.True(t, over.Load())
		require.NoError(t, s.Shutdown())
	})
}
