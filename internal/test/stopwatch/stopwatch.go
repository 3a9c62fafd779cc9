// Package stopwatch measures time for tests on machines that now and then stand still.
package stopwatch

import (
	"sync/atomic"
	"testing"
	"time"
)

const (
	tick = 2 * time.Millisecond
	most = 5 * tick // that one tick counts for, however late it comes
)

// Start returns how long ago it was called, but for the time in which this process did not run: a bound on that tells what
// waits for too long from what was not allowed to run.
func Start(t testing.TB) (elapsed func() time.Duration) {
	t.Helper()
	var ran atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-ticker.C:
				now := time.Now()
				ran.Add(int64(counted(now.Sub(last))))
				last = now
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	return func() time.Duration { return time.Duration(ran.Load()) }
}

// counted is what of the time since the last tick this process ran.
func counted(since time.Duration) time.Duration { return min(since, most) }
