package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTrial_endsWithItsFirstVerdict(t *testing.T) {
	for what, c := range map[string]struct {
		limit time.Duration
		body  func(*Trial)
		says  string
	}{
		"nothing seen":          {time.Minute, func(*Trial) {}, ""},
		"the first of two":      {time.Minute, func(trial *Trial) { trial.Decide(errSeen); trial.Decide(errors.New("later")) }, "two at once"},
		"a Fatalf":              {time.Minute, func(trial *Trial) { trial.Fatalf("no server at %s", "localhost") }, "no server at localhost"},
		"in a story of its own": {time.Minute, func(trial *Trial) { trial.Together(func() {}, func() { trial.Decide(errSeen) }) }, "two at once"},
		"a body that hangs":     {time.Millisecond, func(trial *Trial) { <-trial.Context().Done() }, "did not end within 1ms"},
	} {
		t.Run(what, func(t *testing.T) {
			trial := NewTrial(t)
			defer trial.Close()
			_, err := trial.Run(c.limit, func() { c.body(trial) })
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			_, doubt := errors.AsType[*Doubt](err)
			assert.Equal(t, what == "a body that hangs", doubt, "a call of the Locker that hangs has a limit of its own")
			assert.Equal(t, doubt, errors.Is(err, ErrInDoubt), "the machine may be too slow, however often it is tried")
			_, fatal := errors.AsType[*Fatal](err)
			assert.Equal(t, what == "a Fatalf", fatal)
		})
	}
}

func TestUnless(t *testing.T) {
	u := &Unless{Quiet: errSeen, Seen: ErrInDoubt}
	assert.Equal(t, errSeen, u.on(false))
	_, doubted := errors.AsType[*Doubt](u.on(true))
	assert.True(t, doubted)
	require.ErrorIs(t, u.on(true), ErrInDoubt)
	assert.NoError(t, (&Unless{Seen: ErrInDoubt}).on(false))
}

// What a trial has begun has ended when it is closed.
func TestTrial_closeWaits(t *testing.T) {
	trial := NewTrial(t)
	ended := false
	trial.Spawn(func() {
		<-trial.Context().Done()
		ended = true
	})
	_, err := trial.Run(time.Minute, func() {})
	require.NoError(t, err)
	trial.Close()
	assert.True(t, ended)
}

// What takes long and is not the Locker's adds to the limit.
func TestTrial_allows(t *testing.T) {
	trial := NewTrial(t)
	defer trial.Close()
	_, err := trial.Run(20*time.Millisecond, func() {
		trial.Allow(time.Minute)
		time.Sleep(60 * time.Millisecond)
	})
	require.NoError(t, err)
}

func TestLateness(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		what               string
		gap                time.Duration
		every              int // ticks
		paused, overloaded bool
	}{
		{"in time", 10 * ms, 1, false, false},
		{"late at times", 30 * ms, 100, false, false},
		{"late often", 30 * ms, 10, false, true},
		{"a pause in a long time", 150 * ms, 1000, true, false},
	} {
		var l lateness
		for tick := range 1000 {
			gap := machineTick
			if tick%c.every == 0 {
				gap = c.gap
			}
			l.add(gap)
		}
		assert.Equal(t, c.paused, l.paused(), "%s: %+v", c.what, l)
		assert.Equal(t, c.overloaded, l.overloaded(), "%s: %+v", c.what, l)
	}
	assert.False(t, lateness{}.overloaded(), "before the first tick")
}

// A watch counts the time up to its last tick.
func TestWatchMachine(t *testing.T) {
	stop := watchMachine()
	time.Sleep(100 * time.Millisecond)
	l := stop()
	assert.Greater(t, l.took, 50*time.Millisecond)
	assert.LessOrEqual(t, l.longest, l.took)
}

func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int32
		Watchdog(time.Minute, func() { told.Add(1) })
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		assert.Zero(t, told.Load())
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.EqualValues(t, 1, told.Load(), "once")

		stopped := Watchdog(time.Minute, func() { t.Error("the call has ended") })
		time.Sleep(time.Minute / 2)
		stopped.Stop()
		stopped.next() // it was due already
		time.Sleep(time.Hour)
	})
}

// A process that stands still, for however long, finds one timer due when it goes on.
func TestWatchdog_aPauseIsOneBeat(t *testing.T) {
	told := false
	w := Watchdog(beats*time.Hour, func() { told = true })
	for range beats - 1 {
		w.next()
	}
	assert.False(t, told)
	w.next()
	assert.True(t, told)
}
