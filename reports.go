package locker

import (
	"context"
	"sync"
)

// maxReports is how many reports wait for a handler that is slow, or stuck, before others are
// dropped.
const maxReports = 10_000

// reports makes reports one after another, in a goroutine that is there while there are any: so
// nothing that is to be reported, such as the loss of many holds, waits for a slow handler.
type reports struct {
	mu      sync.Mutex
	waiting []func()
	running bool
	closed  bool
	work    sync.WaitGroup // of the goroutine
}

// add calls report after those that were added before. It returns false, and drops it, if
// limit of them wait already; and does nothing once closed.
func (r *reports) add(limit int, report func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return true
	}
	if len(r.waiting) >= limit {
		return false
	}
	r.waiting = append(r.waiting, report)
	if !r.running {
		r.running = true
		r.work.Go(r.run)
	}
	return true
}

func (r *reports) run() {
	for {
		r.mu.Lock()
		batch := r.waiting
		r.waiting = nil
		r.running = len(batch) > 0
		r.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, report := range batch {
			report()
		}
	}
}

// close waits for what has been added, or until ctx ends, which is false.
func (r *reports) close(ctx context.Context) bool {
	r.mu.Lock()
	r.closed = true
	running := r.running
	r.mu.Unlock()
	if !running {
		r.work.Wait() // for its very end; ctx may have ended before us
		return true
	}
	return returns(ctx, r.work.Wait)
}
