package clock

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLocal_isTheSameReadingEachTime(t *testing.T) {
	deadline := Now().Add(time.Minute)
	first := Local(deadline)
	for range 10_000 {
		assert.True(t, first.Equal(Local(deadline)), "Local must not jitter from call to call")
	}
	assert.InDelta(t, time.Minute, time.Until(first), float64(5*time.Second))
}

// A suspension cannot be caused in a test; the arithmetic that counts one can.
func TestAdvance_countsInStepsAndForwardAlone(t *testing.T) {
	var counted atomic.Int64
	assert.Zero(t, advance(&counted, 900), "noise between two readings is not a suspension")
	assert.Equal(t, int64(time.Minute), advance(&counted, int64(time.Minute)))
	assert.Equal(t, int64(time.Minute), advance(&counted, int64(time.Minute)+1000))
	assert.Equal(t, int64(time.Minute), advance(&counted, -5), "it never goes back")
	assert.Equal(t, int64(time.Hour), advance(&counted, int64(time.Hour)))
}

func TestCounter_asksWhenTheClocksHaveMovedApart(t *testing.T) {
	var c counter
	asked, slept := 0, int64(0)
	suspended := func(apart int64) time.Duration {
		return time.Duration(c.suspended(apart, func() int64 { asked++; return slept }))
	}
	assert.Zero(t, suspended(0))
	assert.Zero(t, suspended(200_000))
	assert.Zero(t, asked)
	assert.Zero(t, suspended(800_000))
	assert.Equal(t, 1, asked, "less than a step of suspension shows")
	asked = 0

	slept = int64(time.Minute)
	assert.Equal(t, time.Minute, suspended(int64(time.Minute)+3000))
	assert.Equal(t, time.Minute, suspended(int64(time.Minute)-3000))
	assert.Equal(t, 1, asked)
	// The wall clock is set back, and jumps about: nobody has slept.
	assert.Equal(t, time.Minute, suspended(-int64(time.Hour)))
	assert.Equal(t, time.Minute, suspended(0))
	assert.Equal(t, 3, asked)
	slept *= 2
	assert.Equal(t, 2*time.Minute, suspended(int64(time.Minute)))
}

// Who looks while another is about to count must not be told that nothing has happened.
func TestCounter_hidesNoSuspensionThatIsBeingCounted(t *testing.T) {
	var c counter
	got := c.suspended(int64(time.Minute), func() int64 {
		other := c.suspended(int64(time.Minute), func() int64 { return int64(time.Minute) })
		assert.Equal(t, int64(time.Minute), other)
		return int64(time.Minute)
	})
	assert.Equal(t, int64(time.Minute), got)
}

// A machine cannot be frozen in a test; what its clocks say after it was can be put together.
func TestAhead_leapsWhenTheWallClockAloneGoesOn(t *testing.T) {
	var c counter
	slept := int64(0)
	ahead := func(apart time.Duration) time.Duration {
		return time.Duration(c.ahead(int64(apart), func() int64 { return slept }))
	}
	assert.Zero(t, ahead(0))
	slept = int64(time.Hour)
	assert.Zero(t, ahead(time.Hour), "a suspension is counted already")
	assert.Equal(t, time.Minute, ahead(time.Hour+time.Minute), "frozen for a minute")
	assert.Equal(t, -time.Hour, ahead(0), "the wall clock is set back")
}

func TestDeadline_growsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where Now is years before the process started
		var d, over Deadline
		assert.Zero(t, d.Left(), "never extended")
		d.Extend(Now().Add(time.Minute))
		d.Extend(Now().Add(time.Second)) // the reply to an earlier request, which comes later
		assert.Equal(t, time.Minute, d.Left())
		over.Extend(Now().Add(-time.Hour))
		assert.Equal(t, -time.Hour, over.Left(), "a reply that came after the end")
	})
}

func TestSleep_ofNoTimeSetsNoTimer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		require.NoError(t, Sleep(ctx, 0))
		require.NoError(t, Sleep(ctx, -1))
	}))
	cancel()
	assert.ErrorIs(t, Sleep(ctx, 0), context.Canceled)
}
