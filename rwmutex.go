package locker

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-locker/locker/driver"
)

// ErrUpgrade means that the holder of a share asked for the lock itself, and so would wait for its
// own share. Unlock the share first. Another may hold the lock in between, so read again what you
// have read under the share.
//
// Lock and TryLock of an RWMutex return it while that RWMutex has a share from RLock. Every call
// that asks for the lock itself returns it if its context carries a share of the name (see
// [Mutex.Join]). Nothing else is noticed: an Acquire while the RWMutex has a share from RLock waits
// until ctx ends.
var ErrUpgrade = errors.New("a share cannot become the lock: unlock the share first")

// ErrReentrant means that a call would wait for a hold that its own context carries (see
// [Mutex.Join]), and so would wait for ever. There are two cases. In the function of Do, the call
// asks for the lock, or for a share (the hold of a reader): call [Mutex.Join], or use the hold that
// the context carries. In the function of RDo, the call asks for another share, and would wait if a
// writer came in between: use the share that the context carries.
var ErrReentrant = errors.New("the context carries a hold of this lock, and the call would wait for it: use Join, or that hold")

// RWMutex is a read-write lock: any number of readers share it, or one writer has it alone. Make
// one with [Client.RWMutex].
//
// A writer takes the plain lock of the name, with the methods of [Mutex]. A Mutex of the same name
// excludes readers and writers, as another writer does. A reader's hold is a share. Each share is
// renewed, lost, extended and unlocked by itself, like any hold. Unlock, Extend, FencingToken, Lost
// and Deadline concern the current hold, of either kind.
//
// Where the backend promises Ordered, it is first come, first served: a writer waits for the
// readers before it, and readers that come after it wait for it. A release lets in one writer, or
// all readers up to the next writer.
//
// Shares that are held at the same time have one fencing token. It is above that of the writer
// before them and below that of the next, so that a resource which has seen a reader's token
// refuses the writer before.
//
// Like a Mutex it has one hold at a time, from Lock or RLock to Unlock: a second RLock waits for
// that Unlock. Readers in several goroutines call RDo or RAcquire, whose holds are independent, or
// have an RWMutex each.
type RWMutex struct{ *Mutex }

// RWMutex returns a new RWMutex for the lock called name, as [Client.Mutex] returns a Mutex.
// Memory, Redis, etcd and ZooKeeper have shares. On other backends the methods that take one return
// ErrUnsupported.
func (c *Client) RWMutex(name string, opts ...MutexOption) *RWMutex {
	return &RWMutex{c.Mutex(name, opts...)}
}

// RLock waits until a share is held or ctx is done. It returns what [Mutex.Lock] returns.
func (m *RWMutex) RLock(ctx context.Context) error {
	_, err := m.contend(ctx, opRLock, (*contender).acquireOwn)
	return err
}

// TryRLock makes one attempt to take a share, of TTL/2 at most. It returns ErrHeld if the lock is
// held by a writer, or one waits for it.
func (m *RWMutex) TryRLock(ctx context.Context) error {
	_, err := m.contend(ctx, opTryRLock, (*contender).acquireOwn)
	return err
}

// RAcquire waits like RLock, and returns a Hold that is independent of this RWMutex.
func (m *RWMutex) RAcquire(ctx context.Context) (*Hold, error) {
	return m.contend(ctx, opRLock, (*contender).acquire)
}

// TryRAcquire makes one attempt, like TryRLock, and returns a Hold, like RAcquire.
func (m *RWMutex) TryRAcquire(ctx context.Context) (*Hold, error) {
	return m.contend(ctx, opTryRLock, (*contender).acquire)
}

// RDo takes a share, calls f with it, and unlocks. Several goroutines may call it at once. The
// context of f, and the error, are those of [Mutex.Do]. If f, or a function that f calls with its
// context, would take the lock of this name, that call returns ErrUpgrade. A call that asks for a
// second share of this name returns ErrReentrant.
func (m *RWMutex) RDo(ctx context.Context, f func(ctx context.Context, h *Hold) error) error {
	_, err := m.rdo(ctx, opRLock, f)
	return err
}

// TryRDo is RDo for a caller that does not wait. If the lock is held by a writer, or one waits for
// it, it returns false and nil, and does not call f. See [Mutex.TryDo].
func (m *RWMutex) TryRDo(ctx context.Context, f func(ctx context.Context, h *Hold) error) (ran bool, err error) {
	return unlessHeld(m.rdo(ctx, opTryRLock, f))
}

func (m *RWMutex) rdo(ctx context.Context, op string, f func(context.Context, *Hold) error) (ran bool, err error) {
	h, err := m.contend(ctx, op, (*contender).acquire)
	if err != nil {
		return false, err
	}
	return true, h.Do(ctx, func(ctx context.Context) error { return f(ctx, h) })
}

// Downgrade makes the current hold a share, as [Hold.Downgrade] does. It returns ErrNotHeld without
// a hold.
func (m *RWMutex) Downgrade(ctx context.Context) error {
	h := m.Hold()
	if h == nil {
		return m.refuse(ctx, opDowngrade)
	}
	return h.Downgrade(ctx)
}

// Downgrade turns this hold into a share in one step. Nobody else has the lock alone in between.
// The readers that wait ahead of the first waiting writer get their shares. The token and the
// deadline stay. It takes TTL/2 at most.
//
// If the hold is a share already, it returns nil. It returns ErrNotHeld after Unlock, ErrLost after
// a loss, and ErrUnsupported if the backend has no shares. After any other error the hold goes on,
// but it is not known whether it is a share: call Downgrade again.
func (h *Hold) Downgrade(ctx context.Context) error {
	return h.client.observed(ctx, opDowngrade, h.name, func(ctx context.Context) Result {
		return Result{Token: h.token, Err: h.downgrade(ctx)}
	})
}

func (h *Hold) downgrade(ctx context.Context) error {
	if err := h.expireIfDue(); err != nil || h.isShared() {
		return err
	}
	lease, ok := h.lease.(driver.Downgrader)
	if !ok {
		return fmt.Errorf("%w: it has no read-write locks", ErrUnsupported)
	}
	return h.whileHeld(ctx, func(r *request) error {
		err := r.explain(lease.Downgrade(r))
		switch {
		case err == nil:
			h.mu.Lock()
			h.shared = true
			h.mu.Unlock()
		case errors.Is(err, ErrLost):
			h.lose(CauseRevoked)
		}
		return err
	})
}

func (h *Hold) isShared() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shared
}

// waits reports whether c goes on until the lock is held.
func (c *contender) waits() bool { return c.op == opLock || c.op == opRLock }

// shares reports whether c wants a share.
func (c *contender) shares() bool { return c.op == opRLock || c.op == opTryRLock }

// waitsForItself returns why c would wait for a hold that its own context carries, or nil. A share
// that waits for a share does so when a writer has come in between.
func (c *contender) waitsForItself() error {
	h := innermost(c.ctx).carried(c.mutex.lockID)
	lasts := h != nil && h.Err() == nil
	switch {
	case lasts && h.isShared() && !c.shares():
		return ErrUpgrade
	case lasts && c.waits():
		return ErrReentrant
	default:
		return nil
	}
}
