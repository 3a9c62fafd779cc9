// Package workers keeps goroutines for calls into client libraries. Those are deep, so that the stack of a new goroutine would
// have to grow for each call. One that has had no call for 10 s ends: a burst leaves none behind, and to make it again costs
// less than a round trip.
package workers

import (
	"slices"
	"sync"
	"time"
)

// patience is after how long a worker without a call ends. It is as long as a lock with a TTL of 30 s goes without a renewal.
const patience = 10 * time.Second

// Workers are goroutines that make calls.
type Workers struct {
	keep int // how many may be idle
	all  sync.WaitGroup

	mu     sync.Mutex
	idle   []chan Call // by when they became so: the latest gets the next call, so that those that are not needed end
	closed bool
}

// Call is what a worker does.
type Call interface{ Run() }

// Func is a Call.
type Func func()

// Run calls f.
func (f Func) Run() { f() }

// New returns Workers of which at most keep are idle, of 16 KiB or so each.
func New(keep int) *Workers { return &Workers{keep: keep} }

// Do has one of them make c, at once.
func (w *Workers) Do(c Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := len(w.idle) - 1; last >= 0 {
		w.idle[last] <- c
		w.idle = slices.Delete(w.idle, last, last+1)
		return
	}
	w.all.Go(func() { w.work(c) })
}

// work makes c, and the calls that come while the worker is idle.
func (w *Workers) work(c Call) {
	calls := make(chan Call, 1) // closed to end the worker
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for more := true; more; {
		c.Run()
		if !w.rest(calls) {
			return
		}
		timer.Reset(patience)
		select {
		case c, more = <-calls:
		case <-timer.C:
			w.leave(calls)
			c, more = <-calls // one that came just now, or none
		}
	}
}

// rest makes a worker one that is idle, or returns false if there are enough of those.
func (w *Workers) rest(calls chan Call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) >= w.keep {
		return false
	}
	w.idle = append(w.idle, calls)
	return true
}

// leave ends a worker, if it is idle still.
func (w *Workers) leave(calls chan Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.idle, calls); i >= 0 {
		w.idle = slices.Delete(w.idle, i, i+1)
		close(calls)
	}
}

// Close waits until all calls have been made, and ends the workers. No call is to come.
func (w *Workers) Close() {
	w.mu.Lock()
	w.closed = true
	for _, calls := range w.idle {
		close(calls)
	}
	w.idle = nil
	w.mu.Unlock()
	w.all.Wait()
}
