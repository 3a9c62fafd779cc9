package engine

import (
	"sync"
	"time"
)

const (
	machineTick = 10 * time.Millisecond
	// longPause is a pause that a shared machine has now and then, and that spoils a trial.
	longPause = 100 * time.Millisecond
	// tooLate is the share of time that this process waits for a processor if the machine is
	// overloaded. Servers on that machine wait as long. With one suite on two processors it is some
	// hundredths, with four at once a fifth to a half.
	tooLate = 0.05
)

// LongEnough is how long the machine is watched, at least, before it is blamed for a trial in
// doubt.
var LongEnough = time.Second

// lateness says how long this process waited for the processor, which it wants each tick.
type lateness struct{ took, late, longest time.Duration }

// watchMachine measures the lateness until stop is called.
func watchMachine() (stop func() lateness) {
	done, result := make(chan struct{}), make(chan lateness, 1)
	go func() {
		var l lateness
		ticker := time.NewTicker(machineTick)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-ticker.C:
				now := time.Now()
				l.add(now.Sub(last))
				last = now
			case <-done:
				result <- l
				return
			}
		}
	}()
	return func() lateness {
		close(done)
		return <-result
	}
}

// add takes in the time from one tick to the next.
func (l *lateness) add(gap time.Duration) {
	l.took += gap
	l.late += max(0, gap-machineTick)
	l.longest = max(l.longest, gap)
}

// paused reports whether the machine stood still for a while.
func (l lateness) paused() bool { return l.longest > longPause }

// overloaded reports whether the machine was too slow all the time. That excuses slowness, and
// hides no flaw.
func (l lateness) overloaded() bool { return float64(l.late) > tooLate*float64(l.took) }

// beats is the number of beats in the limit of a call. If the machine does not run this process for
// a while, the call stands still, too, and only one beat passes.
const beats = 20

// Heart counts the beats of one call, and calls tell if the call outlasts all of them.
type Heart struct {
	beat time.Duration
	tell func()

	mu    sync.Mutex
	left  int // 0: the call has ended, or tell was called
	timer *time.Timer
}

// Watchdog calls tell after this process has run for limit, unless it is stopped before.
func Watchdog(limit time.Duration, tell func()) *Heart {
	h := &Heart{beat: limit / beats, tell: tell, left: beats}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(h.beat, h.next)
	return h
}

// next is called when a beat is over, however late.
func (h *Heart) next() {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.left {
	case 0:
	case 1:
		h.left = 0
		h.tell()
	default:
		h.left--
		h.timer.Reset(h.beat)
	}
}

// Stop ends the watch: tell is not called any more.
func (h *Heart) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = 0
	h.timer.Stop()
}
