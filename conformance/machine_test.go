package conformance

import (
	"testing"
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
