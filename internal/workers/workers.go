// Package workers keeps goroutines for calls into client libraries. Those are deep, so that the stack of a new goroutine would
// have to grow for each call.
package workers

import (
	"sync"
	"sync/atomic"
)

// Workers are goroutines that make calls.
type Workers struct {
	calls chan Call // to those that are idle; closed to end them
	keep  int32     // how many may be idle
	idle  atomic.Int32
	all   sync.WaitGroup
	end   sync.Once
}

// Call is what a worker does.
type Call interface{ Run() }

// Func is a Call.
type Func func()

// Run calls f.
func (f Func) Run() { f() }

// New returns Workers of whom at most keep are idle, of 16 KiB or so each.
func New(keep int) *Workers {
	return &Workers{calls: make(chan Call), keep: int32(keep)}
}

// Do has one of them make c, at once.
func (w *Workers) Do(c Call) {
	select {
	case w.calls <- c:
	default:
		w.all.Go(func() { w.work(c) })
	}
}

func (w *Workers) work(c Call) {
	for more := true; more; w.idle.Add(-1) {
		c.Run()
		if w.idle.Add(1) > w.keep {
			more = false
			continue
		}
		c, more = <-w.calls
	}
}

// Idle is how many are.
func (w *Workers) Idle() int { return int(w.idle.Load()) }

// Close returns when all calls have been made, and ends the workers. No call is to come.
func (w *Workers) Close() {
	w.end.Do(func() { close(w.calls) })
	w.all.Wait()
}
