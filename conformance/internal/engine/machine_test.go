package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

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
