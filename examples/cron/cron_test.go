// Package cron_test has a recipe, and its tests: a job that runs once a tick, in one of many processes, also where their clocks differ.
package cron_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence/filefence"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/locktest"
)

// cron is a recipe to copy: one of many processes that are to run a job once a tick. What it does is not what comes to mind first: at each
// tick TryLock, run the job, Unlock. A machine whose clock is late by more than the job takes finds the lock
// free, and runs the tick again (TestTicks_aLockWithoutAMinimumRunsThemAgain of
// integrations/gocron). Nor does it help to have a lock for each tick and to keep it for a while: a
// holder that dies leaves it free, and a clock may be later than any while.
//
// So the lock is to the end that one at a time looks and runs. What is done is known by a record, which outlives the
// lock, and which every process looks at first. A tick is
//
//   - never run twice at the same time, as far as the lock goes (see Client.Guarantees);
//   - never run again once it is recorded, however wrong the clocks are;
//   - run again if its process dies, or loses the lock, before it was recorded: by another who waits for the lock. A job that must
//     not happen twice even then has to look at the token itself, as the record does.
type cron struct {
	lock   *locker.Mutex // one for the job, not one for each tick
	record record
	every  time.Duration
	run    func(ctx context.Context, tick time.Time) error // the job; ctx ends when the lock is lost
	now    func() time.Time                                // the machine's clock
	say    func(format string, args ...any)
}

// serve runs the job at each tick at which no other process has, until ctx ends. A tick that is missed, since the one before
// took too long, is left out.
func (c cron) serve(ctx context.Context) error {
	for {
		tick := c.now().Truncate(c.every).Add(c.every)
		select {
		case <-time.After(tick.Sub(c.now())):
		case <-ctx.Done():
			return nil
		}
		ran, err := c.once(ctx, tick)
		switch {
		case errors.Is(err, locker.ErrClosed), errors.Is(err, locker.ErrUnsupported):
			return err // and so it would be for ever
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil
		case err != nil:
			c.say("%s failed: %v", clockTime(tick), err)
		case !ran:
			c.say("%s is done already", clockTime(tick))
		}
	}
}

// once runs the job unless tick is done, or a later one. It waits for a process that is running it, and takes over from one
// that dies meanwhile.
func (c cron) once(ctx context.Context, tick time.Time) (ran bool, err error) {
	err = c.lock.Do(ctx, func(ctx context.Context) error {
		token := c.lock.FencingToken()
		last, err := c.record.begin(ctx, token)
		if err != nil {
			return err
		}
		if ahead := last.Sub(c.now()); ahead > c.every {
			return fmt.Errorf("no tick runs for %v, as a later one is on record: a clock is wrong, this one or another", ahead)
		}
		if !tick.After(last) {
			return nil
		}
		c.say("%s runs, under token %d", clockTime(tick), token)
		if err := c.run(ctx, tick); err != nil {
			return err // not recorded: the next in line tries again
		}
		ran = true
		return c.record.finish(context.WithoutCancel(ctx), token, tick) // it was run, whatever has ended meanwhile
	})
	return ran, err
}

func clockTime(tick time.Time) string { return tick.Format("15:04:05.0") }

// record is a file that says which tick was done last. All processes share it, and it is what their lock protects: so it keeps
// the largest fencing token that it has seen, in a file beside it, and refuses what an earlier holder has to say.
//
// Tokens of two locks cannot be compared: another lock server takes another file. Processes on many machines have a row in a
// database instead: see package sqlfence.
type record string

const perm = 0o644

// begin returns the last tick that was done. From now on earlier holders are refused.
func (r record) begin(ctx context.Context, token uint64) (last time.Time, err error) {
	text, err := filefence.Read(ctx, string(r), token, perm)
	if err != nil || text == nil { // nil: none was done yet
		return time.Time{}, err
	}
	err = last.UnmarshalText(text)
	return last, err
}

// finish notes that tick is done.
func (r record) finish(ctx context.Context, token uint64, tick time.Time) error {
	text, err := tick.MarshalText()
	if err != nil {
		return err
	}
	return filefence.Write(ctx, string(r), token, text, perm)
}

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
		lock: locktest.New(t, opts...).Mutex("cron"), record: r, every: every,
		run: func(_ context.Context, tick time.Time) error {
			time.Sleep(time.Second)
			l.ran(tick)
			return nil
		},
		now: func() time.Time { return time.Now().Add(skew) },
		say: func(string, ...any) {},
	}
}

func TestServe_eachTickOnceWhateverTheClocksSay(t *testing.T) {
	// Some differ by more than the job takes, and by more than a tick.
	skews := []time.Duration{0, 300 * time.Millisecond, -300 * time.Millisecond, 5 * time.Second, -20 * time.Second, -2 * every}
	r := record(filepath.Join(t.TempDir(), "record"))
	synctest.Test(t, func(t *testing.T) {
		l, start := newLedger(), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*every+every/2)
		defer cancel()
		var all sync.WaitGroup
		for _, skew := range skews {
			all.Go(func() { assert.NoError(t, l.process(t, r, skew).serve(ctx)) })
		}
		all.Wait()
		for i := range 100 {
			tick := start.Truncate(every).Add(time.Duration(i+1) * every).Round(0)
			assert.Equal(t, 1, l.runs[tick], "runs at %v", tick)
		}
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
