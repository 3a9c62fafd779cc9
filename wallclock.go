package locker

import "time"

// leap is how far the wall clock has to go ahead of ours between two looks to tell of a machine that was frozen from outside, such as
// a virtual machine that its host paused: our clock stood still, and a hold may have expired at the backend. Somebody who sets
// the wall clock forward looks the same, and costs one renewal each time. Less than a leap is no more than the grain of some clocks.
const leap = 50 * time.Millisecond

// wallClock is looked at to tell whether the machine was frozen. No hold ends by it.
type wallClock struct {
	read  func() time.Duration // clock.Ahead
	ahead time.Duration        // what read returned last
	leapt time.Time            // when it was last seen to have leapt, by package clock
}

// watch begins to look at the clock that read reads.
func (w *wallClock) watch(read func() time.Duration) {
	w.read, w.ahead = read, read()
}

// look returns by how much the clock has leapt ahead since the last look, and 0 if it has not.
func (w *wallClock) look(now time.Time) time.Duration {
	was := w.ahead
	w.ahead = w.read()
	if w.ahead-was < leap {
		return 0
	}
	w.leapt = now
	return w.ahead - was
}

// leaptSince reports whether the wall clock was seen to leap after a request was sent: what that was granted may have expired.
func (r *renewer) leaptSince(sent time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wall.leapt.After(sent)
}
