package locker

import (
	"context"
	"time"

	"github.com/go-locker/locker/driver"
)

// looksPerTTL is how often a hold that asked looks for waiters, where the backend does not tell.
const looksPerTTL = 10

// Wanted returns a channel that is closed when somebody waits for this lock, for a holder that
// would then give way: one that keeps a cache warm, say, or that another instance is to relieve. A
// TryLock is not noticed. The channel stays closed, also if nobody waits any more.
//
// Where the backend tells, as package memory does, it is closed at once, and so it is for a Lock of
// the same Mutex. Elsewhere the first call, and from then on every tenth of the TTL, costs a
// request like that of [Client.Inspect], until somebody waits or the hold ends; and a goroutine. A
// hold for which nobody calls Wanted pays nothing. If the backend has no queue, the channel is
// never closed.
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
	if n, ok := h.lease.(driver.WaitNotifier); ok {
		n.NotifyWait(h.want)
		return wanted
	}
	if _, ok := h.client.driver.(driver.Inspector); ok && h.client.begin() == nil {
		go func() {
			defer h.client.calls.Done()
			h.lookForWaiters(wanted)
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

// lookForWaiters looks until somebody waits or the hold is over.
func (h *Hold) lookForWaiters(wanted <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	forget := h.atEnd(0, func(error) { cancel() })
	defer forget()
	looks := time.NewTicker(h.ttl / looksPerTTL)
	defer looks.Stop()
	for {
		if state, err := h.client.inspect(ctx, h.name); err == nil && len(state.Waiters) > 0 {
			h.want()
		}
		select {
		case <-wanted:
			return
		case <-ctx.Done():
			return
		case <-looks.C:
		}
	}
}

// Wanted returns a channel that is closed when somebody waits for the lock, as [Hold.Wanted] of the
// current hold does. Before Lock and after Unlock it returns nil, which blocks for ever.
func (m *Mutex) Wanted() <-chan struct{} {
	h := m.current()
	if h == nil {
		return nil
	}
	return h.Wanted()
}

// isWaitedFor reports whether goroutines wait for their turn with m.
func (m *Mutex) isWaitedFor() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiting) > 0
}
