// Package clock is the one clock that locks are timed by. It is the process's monotonic clock
// plus the time the machine was suspended, which Go's own clock leaves out on Linux: a lease goes
// on at the server while the laptop sleeps.
package clock

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Now returns the current time on a clock that counts suspension where the platform can tell
// (Linux). Two readings of one process compare by elapsed time, whatever happens to the wall clock.
func Now() time.Time {
	now := time.Now()
	return now.Add(suspendedAt(now))
}

// Local turns a reading of Now into one of time.Now, so that a user can compare it with time.Now
// or hand it to time.Until.
func Local(t time.Time) time.Time {
	return t.Add(-suspendedAt(time.Now()))
}

// Since returns the time elapsed since t, a reading of Now.
func Since(t time.Time) time.Duration {
	return Now().Sub(t)
}

// Random returns a random duration below n, by which pauses differ. A simulation has its seed
// decide instead.
var Random = rand.N[time.Duration]

// Sleep waits for d, or returns ctx.Err() when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// step is the least growth that counts as a suspension. The two clocks are read one after the
// other, so that a smaller difference may be no more than the time between the readings.
const step = int64(time.Millisecond)

// counter counts suspensions, in nanoseconds. What it has counted moves in steps, and forward
// alone, so that Local gives the same answer for the same t until the machine has really slept.
type counter struct {
	counted atomic.Int64

	// apart is by how much the wall clock had gone ahead of the monotonic one when slept was last
	// asked. That is two system calls, and the answer stays the same until the two clocks have
	// moved apart: by a suspension, or because the wall clock was set.
	apart atomic.Int64
}

func (c *counter) suspended(apart int64, slept func() int64) int64 {
	old := c.apart.Load()
	if moved := apart - old; -step/2 < moved && moved < step/2 {
		return c.counted.Load()
	}
	counted := advance(&c.counted, slept())
	c.apart.CompareAndSwap(old, apart) // last: until it is counted everybody asks
	return counted
}

// ahead returns what of apart is no suspension.
func (c *counter) ahead(apart int64, slept func() int64) int64 {
	return apart - c.suspended(apart, slept)
}

var (
	suspensions counter
	origin      = time.Now()
)

// suspendedAt returns how long the machine has been suspended since the process started.
func suspendedAt(now time.Time) time.Duration {
	return time.Duration(suspensions.suspended(apartAt(now), slept))
}

// Ahead returns by how much the wall clock has gone ahead of Now since the process started. It
// leaps when somebody sets the wall clock, and when the machine was frozen from outside, as a
// virtual machine is that its host pauses: then Now stands still, and the wall clock is set right
// after the resume.
func Ahead() time.Duration {
	return time.Duration(suspensions.ahead(apartAt(time.Now()), slept))
}

// apartAt returns by how much the wall clock has gone ahead of the monotonic one.
func apartAt(now time.Time) int64 {
	return now.UnixNano() - origin.UnixNano() - int64(now.Sub(origin))
}

func advance(counted *atomic.Int64, now int64) int64 {
	for {
		old := counted.Load()
		if now < old+step {
			return old
		}
		if counted.CompareAndSwap(old, now) {
			return now
		}
	}
}
