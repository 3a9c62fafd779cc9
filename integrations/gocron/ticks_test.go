package gocron_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cron "github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/integrations/gocron"
	"github.com/go-locker/locker/internal/test/testserver"
	_ "github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/redis"
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

// plain is the adapter that comes to mind first.
type plain struct{ client *locker.Client }

func (p plain) Lock(ctx context.Context, key string) (cron.Lock, error) {
	return p.client.Mutex(key).TryAcquire(ctx)
}

// countTicks has five schedulers, each with a Client and a clock of its own, run a short job for some ticks. It returns how often each has run.
func countTicks(t *testing.T, url string, job func(*locker.Client, func(time.Duration)) (cron.Locker, cron.Task)) map[int]int {
	t.Helper()
	counted := &tally{first: time.Now().Add(every), runs: map[int]int{}}
	var running []cron.Scheduler
	for i := range schedulers {
		client, err := locker.Open(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		clock := late{clockwork.NewRealClock(), time.Duration(i) * skew}
		locks, task := job(client, func(d time.Duration) {
			counted.ran(clock.Now())
			time.Sleep(d)
		})
		s, err := cron.NewScheduler(cron.WithClock(clock), cron.WithDistributedLocker(locks))
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
	return counted.runs
}

func ours(t *testing.T) func(*locker.Client, func(time.Duration)) (cron.Locker, cron.Task) {
	t.Helper()
	return func(client *locker.Client, run func(time.Duration)) (cron.Locker, cron.Task) {
		l, err := gocron.NewLocker(client, minimum, logged(t))
		require.NoError(t, err)
		task := l.Task(func(context.Context, uint64) error {
			run(short)
			return nil
		})
		return l, task
	}
}

func theirs(client *locker.Client, run func(time.Duration)) (cron.Locker, cron.Task) {
	return plain{client}, cron.NewTask(func() { run(short) })
}

// logged is an onError for where a busy server may not answer in time.
func logged(t *testing.T) func(error) {
	return func(err error) { t.Logf("told: %v", err) }
}

// noError is an onError for where there must be none.
func noError(t *testing.T) func(error) {
	return func(err error) { t.Errorf("told: %v", err) }
}

// redisURL is that of locks which processes can share. Each test has a prefix of its own.
func redisURL(t *testing.T, prefix string) string {
	t.Helper()
	return testserver.SharedRedis(t).URL() + "?ttl=3s&prefix=" + prefix
}

func TestTicks_eachRunsOnceThoughTheClocksDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assertOnce(t, countTicks(t, "mem://ticks-once", ours(t)))
	})
}

func assertOnce(t *testing.T, runs map[int]int) {
	t.Helper()
	assert.Len(t, runs, ticks)
	for tick, n := range runs {
		assert.Equal(t, 1, n, "runs of tick %d", tick)
	}
}

// What the minimum is for.
func TestTicks_aLockWithoutAMinimumRunsThemAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assertAgain(t, countTicks(t, "mem://ticks-again", theirs))
	})
}

func assertAgain(t *testing.T, runs map[int]int) {
	t.Helper()
	all := 0
	for _, n := range runs {
		all += n
	}
	assert.Greater(t, all, 3*ticks, "of %d ticks", ticks)
}
