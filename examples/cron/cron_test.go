package main

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/locktest"
	"github.com/go-locker/locker/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const every = time.Minute

// ledger counts how often each tick has run.
type ledger struct {
	mu   sync.Mutex
	runs map[time.Time]int
}

func (l *ledger) ran(tick time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[tick]++
}

func newLedger() *ledger { return &ledger{runs: map[time.Time]int{}} }

// process is one with a Client and a clock of its own, within a bubble. Its job takes a second.
func (l *ledger) process(t *testing.T, r record, skew time.Duration, opts ...locker.Option) cron {
	t.Helper()
	return cron{
		lock: mutex(t, opts...), record: r, every: every,
		run: func(_ context.Context, tick time.Time) error {
			time.Sleep(time.Second)
			l.ran(tick)
			return nil
		},
		now: func() time.Time { return time.Now().Add(skew) },
		say: func(string, ...any) {},
	}
}

func mutex(t *testing.T, opts ...locker.Option) *locker.Mutex {
	t.Helper()
	return locktest.New(t, opts...).Mutex("cron")
}

// skews are some that differ by more than the job takes, and by more than a tick.
var skews = []time.Duration{0, 300 * time.Millisecond, -300 * time.Millisecond, 5 * time.Second, -20 * time.Second, -2 * every}

// onAllClocks runs f for each of the skews until a hundred ticks have passed.
func onAllClocks(t *testing.T, f func(ctx context.Context, skew time.Duration) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*every+every/2)
	defer cancel()
	var all sync.WaitGroup
	for _, skew := range skews {
		all.Go(func() { assert.NoError(t, f(ctx, skew)) })
	}
	all.Wait()
}

func TestServe_eachTickOnceWhateverTheClocksSay(t *testing.T) {
	r := record(filepath.Join(t.TempDir(), "record"))
	synctest.Test(t, func(t *testing.T) {
		l, start := newLedger(), time.Now()
		onAllClocks(t, func(ctx context.Context, skew time.Duration) error { return l.process(t, r, skew).serve(ctx) })
		for i := range 100 {
			tick := start.Truncate(every).Add(time.Duration(i+1) * every).Round(0)
			assert.Equal(t, 1, l.runs[tick], "runs at %v", tick)
		}
	})
}

// What cron is for: see its comment.
func TestTryLockAtEachTickRunsTicksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		onAllClocks(t, func(ctx context.Context, skew time.Duration) error {
			c := l.process(t, "", skew)
			for ; ; time.Sleep(time.Millisecond) {
				tick := c.now().Truncate(every).Add(every)
				select {
				case <-time.After(tick.Sub(c.now())):
				case <-ctx.Done():
					return nil
				}
				err := c.lock.TryLock(ctx)
				if errors.Is(err, locker.ErrHeld) {
					continue
				}
				if err != nil {
					return err
				}
				_ = c.run(ctx, tick)
				if err := c.lock.Unlock(ctx); err != nil {
					return err
				}
			}
		})
		again := 0
		for _, n := range l.runs {
			again += n - 1
		}
		assert.Greater(t, again, 100, "of 100 ticks")
	})
}

func TestOnce_waitsForWhoRunsItAndFindsItDone(t *testing.T) {
	r := record(filepath.Join(t.TempDir(), "record"))
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		tick := time.Now()
		first := l.process(t, r, 0)
		done := testwait.Go(func() error { _, err := first.once(t.Context(), tick); return err })
		synctest.Wait()
		ran, err := l.process(t, r, 0).once(t.Context(), tick)
		require.NoError(t, err)
		assert.False(t, ran)
		require.NoError(t, <-done)
		ran, err = l.process(t, r, 0).once(t.Context(), tick.Add(-every))
		require.NoError(t, err)
		assert.False(t, ran, "an earlier one")
		assert.Equal(t, map[time.Time]int{tick: 1}, l.runs)
	})
}

func TestOnce_takesOverFromWhoStandsStillAndWhoIsThenRefused(t *testing.T) {
	r := record(filepath.Join(t.TempDir(), "record"))
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		tick := time.Now()
		still := l.process(t, r, 0, locker.WithoutRenewal())
		still.run = func(context.Context, time.Time) error { // it does not look at its ctx
			time.Sleep(time.Hour)
			return nil
		}
		done := testwait.Go(func() error { _, err := still.once(t.Context(), tick); return err })
		synctest.Wait()
		ran, err := l.process(t, r, 0).once(t.Context(), tick)
		require.NoError(t, err)
		assert.True(t, ran)
		err = <-done
		require.ErrorIs(t, err, locker.ErrLost)
		last, err := r.begin(t.Context(), 1<<62)
		require.NoError(t, err)
		assert.True(t, last.Equal(tick))
	})
}

func TestOnce_aJobThatFailsIsTriedAgainByWhoWaits(t *testing.T) {
	r := record(filepath.Join(t.TempDir(), "record"))
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		tick := time.Now()
		c := l.process(t, r, 0)
		failed := errors.New("no paper")
		c.run = func(context.Context, time.Time) error { return failed }
		ran, err := c.once(t.Context(), tick)
		require.ErrorIs(t, err, failed)
		assert.False(t, ran)
		ran, err = l.process(t, r, 0).once(t.Context(), tick)
		require.NoError(t, err)
		assert.True(t, ran)
	})
}

// The backend may go away, or somebody may take the lock away, in the midst of the job.
func TestOnce_aJobWhoseLockIsLostEndsAndIsRunByAnother(t *testing.T) {
	for name, lose := range map[string]func(*locktest.Client){
		"in an outage":   (*locktest.Client).Down,
		"by an operator": func(c *locktest.Client) { c.Lose("cron") },
	} {
		t.Run(name, func(t *testing.T) {
			r := record(filepath.Join(t.TempDir(), "record"))
			synctest.Test(t, func(t *testing.T) {
				l, locks, tick := newLedger(), locktest.New(t), time.Now()
				c := l.process(t, r, 0)
				c.lock = locks.Mutex("cron")
				c.run = func(ctx context.Context, _ time.Time) error {
					lose(locks)
					<-ctx.Done()
					return context.Cause(ctx)
				}
				_, err := c.once(t.Context(), tick)
				require.ErrorIs(t, err, locker.ErrLost)
				ran, err := l.process(t, r, 0).once(t.Context(), tick)
				require.NoError(t, err)
				assert.True(t, ran)
				assert.Equal(t, map[time.Time]int{tick: 1}, l.runs)
			})
		})
	}
}

func TestOnce_aJobThatIsDoneAsCtxEndsIsRecorded(t *testing.T) {
	r := record(filepath.Join(t.TempDir(), "record"))
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		tick := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		c := l.process(t, r, 0)
		c.run = func(context.Context, time.Time) error {
			cancel()
			return nil
		}
		_, err := c.once(ctx, tick)
		require.NoError(t, err)
		ran, err := l.process(t, r, 0).once(t.Context(), tick)
		require.NoError(t, err)
		assert.False(t, ran)
	})
}

func TestOnce_aClockFarAheadIsNoticed(t *testing.T) {
	r := record(filepath.Join(t.TempDir(), "record"))
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		ahead := l.process(t, r, 24*time.Hour)
		_, err := ahead.once(t.Context(), ahead.now())
		require.NoError(t, err)
		here := l.process(t, r, 0)
		ran, err := here.once(t.Context(), here.now())
		require.ErrorContains(t, err, "a clock is wrong")
		assert.False(t, ran)
	})
}

func TestServe_ofAClosedClientEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := locker.New(memory.NewDriver())
		require.NoError(t, err)
		require.NoError(t, c.Close())
		p := newLedger().process(t, "", 0)
		p.lock = c.Mutex("cron")
		require.ErrorIs(t, p.serve(t.Context()), locker.ErrClosed)
	})
}

func TestRecord_refusesStaleTokens(t *testing.T) {
	r := record(filepath.Join(t.TempDir(), "record"))
	tick := time.Now().UTC().Round(0)
	last, err := r.begin(t.Context(), 5)
	require.NoError(t, err)
	assert.Zero(t, last)
	for _, stale := range []uint64{0, 4} {
		_, err = r.begin(t.Context(), stale)
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorIs(t, r.finish(t.Context(), stale, tick), fence.ErrStale)
	}
	require.NoError(t, r.finish(t.Context(), 5, tick))
	last, err = r.begin(t.Context(), 6)
	require.NoError(t, err)
	assert.Equal(t, tick, last)
	require.ErrorIs(t, r.finish(t.Context(), 5, tick.Add(every)), fence.ErrStale, "once a later holder has begun")
}
