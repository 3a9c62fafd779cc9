package locker

import (
	"context"
	"time"

	"github.com/go-locker/locker/driver"
)

// looksPerTTL is how often a hold that asked looks for waiters, where the backend does not tell.
const looksPerTTL = 10

// Wanted returns a channel that is closed when somebody waits for this lock. It is for a holder
// that gives the lock up when another wants it: one that keeps a cache warm, or an old instance
// that a new one replaces. A TryLock is not noticed. The channel stays closed, also if nobody waits
// any more.
//
// A Lock of the same Mutex closes the channel at once. Other waiters are noticed as the backend
// allows:
//
// Memory, Redis, etcd and ZooKeeper tell the holder when somebody begins to wait. The first call of
// Wanted costs two requests there. One more follows in each TTL, because a message may be lost.
// Redis sends this on the connection that also wakes the Client's waiters. On other backends the
// hold makes the request of [Client.Inspect], every TTL/10. There is an exception: a backend that
// promises no order of waiters has no queue to look at. There only a Lock of the same Mutex closes
// the channel.
//
// The hold watches for waiters until somebody waits, or until its end. This takes a goroutine. A
// hold for which nobody calls Wanted pays nothing.
func (h *Hold) Wanted() <-chan struct{} {
	h.mu.Lock()
	asked := h.wanted != nil
	if !asked {
		h.wanted = make(chan struct{})
	}
	wanted, mutex := h.wanted, h.mutex
	h.mu.Unlock()
	if asked || h.Err() != nil {
		return wanted
	}
	if mutex != nil && mutex.isWaitedFor() {
		h.want()
		return wanted
	}
	look := h.lookForWaiters
	if n, ok := h.lease.(driver.WaitNotifier); ok {
		look = n.NotifyWait
	} else if h.client.Guarantees()[Ordered].Level == LevelNo { // there is no queue
		return wanted
	}
	if h.client.begin() == nil {
		go func() {
			defer h.client.calls.Done()
			h.awaitWaiter(wanted, look)
		}()
	}
	return wanted
}

// want closes the channel that Wanted returns, if somebody has asked for it.
func (h *Hold) want() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wanted == nil {
		return
	}
	select {
	case <-h.wanted:
	default:
		close(h.wanted)
	}
}

// lookForWaiters is NotifyWait for a backend that does not tell.
func (h *Hold) lookForWaiters(ctx context.Context, _ func()) (waits bool, next time.Duration, err error) {
	state, err := h.client.inspect(ctx, h.name)
	return len(state.Waiters) > 0, 0, err
}

// awaitWaiter looks until somebody waits or the hold is over.
func (h *Hold) awaitWaiter(wanted <-chan struct{}, look func(context.Context, func()) (bool, time.Duration, error)) {
	hold, end := context.WithCancel(context.Background())
	defer end()
	e := &ending{tell: func(error) { end() }}
	h.atEnd(e)
	defer h.forget(e)
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	for hold.Err() == nil {
		ctx, cancel := context.WithCancel(hold)
		late := time.AfterFunc(h.ttl/2, cancel)
		waits, next, err := look(ctx, wake)
		if waits && err == nil {
			h.want()
		}
		if inTime := late.Stop(); err != nil || !inTime || next <= 0 {
			next = h.ttl / looksPerTTL
		}
		again := time.NewTimer(next)
		select {
		case <-wanted:
			end()
		case <-woken:
		case <-again.C:
		case <-hold.Done():
		}
		again.Stop()
		cancel()
	}
}

// isWaitedFor reports whether goroutines wait for their turn with m.
func (m *Mutex) isWaitedFor() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiting) > 0
}
