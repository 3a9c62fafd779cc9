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
	idle   []*worker // by when they became so: the latest gets the next call, so that those that are not needed end
	timer  *time.Timer
	armed  bool // if any is idle
	closed bool
}

// worker is one that is idle now and then.
type worker struct {
	calls chan Call // has room for one; closed to end the worker
	since time.Time
}

// Call is what a worker does.
type Call interface{ Run() }

// Func is a Call.
type Func func()

// Run calls f.
func (f Func) Run() { f() }

// New returns Workers of whom at most keep are idle, of 16 KiB or so each.
func New(keep int) *Workers { return &Workers{keep: keep} }

// Do has one of them make c, at once.
func (w *Workers) Do(c Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := len(w.idle) - 1; last >= 0 {
		w.idle[last].calls <- c
		w.idle = slices.Delete(w.idle, last, last+1)
		return
	}
	w.all.Go(func() { w.work(c) })
}

func (w *Workers) work(c Call) {
	own := &worker{calls: make(chan Call, 1)}
	for more := true; more; {
		c.Run()
		if !w.rest(own) {
			return
		}
		c, more = <-own.calls
	}
}

// rest has one wait for its next call, or returns false if there are enough that do.
func (w *Workers) rest(one *worker) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) >= w.keep {
		return false
	}
	one.since = time.Now()
	w.idle = append(w.idle, one)
	w.arm()
	return true
}

// arm has those ended that are idle for too long. The caller holds w.mu.
func (w *Workers) arm() {
	if w.armed || len(w.idle) == 0 {
		return
	}
	w.armed = true
	left := patience - time.Since(w.idle[0].since)
	if w.timer == nil {
		w.timer = time.AfterFunc(left, w.tick)
	} else {
		w.timer.Reset(left)
	}
}

func (w *Workers) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	i := slices.IndexFunc(w.idle, func(one *worker) bool { return time.Since(one.since) < patience })
	if i < 0 {
		i = len(w.idle)
	}
	w.end(i)
	w.arm()
}

// end ends the first n that are idle. The caller holds w.mu.
func (w *Workers) end(n int) {
	for _, one := range w.idle[:n] {
		close(one.calls)
	}
	w.idle = slices.Delete(w.idle, 0, n)
}

// Idle is how many are.
func (w *Workers) Idle() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.idle)
}

// Close returns when all calls have been made, and ends the workers. No call is to come.
func (w *Workers) Close() {
	w.mu.Lock()
	w.closed = true
	w.end(len(w.idle))
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	w.all.Wait()
}
