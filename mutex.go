package locker

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
)

// Mutex is the lock of one name. It implements [Locker] with one [Hold] at a time. Make one with [Client.Mutex]; its zero value
// is of no use. It may be used by several goroutines, and is not reentrant, but for [Mutex.Join].
type Mutex struct {
	client   *Client
	name     string
	settings settings
	request  driver.Request
	invalid  error // why no method works
	shared   bool  // it is a part of an RWMutex

	turn chan struct{} // has a value while one waits for a share of its own

	mu         sync.Mutex
	hold       *Hold                   // from Lock until its Unlock, also when lost
	contenders map[*contender]struct{} // which make what they get the Mutex's own
}

var _ Locker = (*Mutex)(nil)

// Name returns the name of the lock, without the Client's prefix.
func (m *Mutex) Name() string { return m.name }

// Guarantees returns what the backend promises: those of the Client.
func (m *Mutex) Guarantees() Guarantees { return m.client.Guarantees() }

// Lock waits until the lock is held or ctx is done. It returns ErrLost while a lost hold awaits its Unlock, ErrClosed if the
// Client is closed, and otherwise what [Locker] lists.
func (m *Mutex) Lock(ctx context.Context) error {
	_, err := m.contend(ctx, opLock, (*contender).acquireOwn)
	return err
}

// TryLock makes one attempt to take the lock, of TTL/2 at most. It returns ErrHeld if another owner holds the lock, and the
// client library's error if the backend is unreachable. Otherwise it is like Lock.
func (m *Mutex) TryLock(ctx context.Context) error {
	_, err := m.contend(ctx, opTryLock, (*contender).acquireOwn)
	return err
}

// Acquire waits like Lock, and returns a Hold that is independent of this Mutex and of the hold that its
// Lock takes. It ends with its own Unlock.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) {
	return m.contend(ctx, opLock, (*contender).acquire)
}

// TryAcquire makes one attempt, like TryLock, and returns a Hold, like Acquire.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) {
	return m.contend(ctx, opTryLock, (*contender).acquire)
}

// acquireOwn acquires a hold and makes it the Mutex's own. While a lost hold awaits its Unlock it returns
// ErrLost, also to those that wait already.
func (c *contender) acquireOwn() (*Hold, error) {
	m := c.mutex
	former := m.enter(c)
	defer m.leave(c)
	if c.shares() && c.waits() {
		if err := c.awaitTurn(); err != nil {
			return nil, err
		}
		defer func() { <-m.turn }()
		former = m.current()
	}
	for {
		if former != nil && errors.Is(former.expireIfDue(), ErrLost) && m.client.open.Err() == nil {
			return nil, ErrLost
		}
		if err := c.besides(former); err != nil {
			return nil, err
		}
		h, err := c.acquire()
		if err != nil {
			return nil, err
		}
		former = m.adopt(h)
		if former == nil {
			h.belongsTo(m)
			return h, nil
		}
		_ = h.unlock(c.ctx)
		if former.token < h.token { // of two shares it is the same
			// The later grant proves that the former hold has ended, and its Unlock is still to come.
			former.lose(CauseRevoked)
			return nil, ErrLost
		}
		// Ours was first, and has ended since its grant.
		c.contended.Store(true)
		if !c.waits() {
			return nil, ErrHeld
		}
	}
}

// adopt makes h the Mutex's own, unless it has one already, which it returns.
func (m *Mutex) adopt(h *Hold) (former *Hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold == nil {
		m.hold = h
		return nil
	}
	return m.hold
}

// lostPending ends the waiting of those who would lock this Mutex while its lost hold h awaits
// its Unlock.
func (m *Mutex) lostPending(h *Hold) {
	m.mu.Lock()
	var waiting []*contender
	if m.hold == h {
		waiting = slices.Collect(maps.Keys(m.contenders))
	}
	m.mu.Unlock()
	for _, c := range waiting { // unlocked: the end of c's context may have another hold's looked at, and that lost
		c.cancel(ErrLost)
	}
}

// enter has c told of a loss, and returns the hold that there is.
func (m *Mutex) enter(c *contender) *Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.contenders == nil {
		m.contenders = map[*contender]struct{}{}
	}
	m.contenders[c] = struct{}{}
	return m.hold
}

func (m *Mutex) leave(c *contender) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.contenders, c)
}

// detach makes h, or with nil whatever is held, the Mutex's own no longer, and returns what was.
func (m *Mutex) detach(h *Hold) *Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := m.hold
	if h != nil && current != h {
		return nil
	}
	m.hold = nil
	return current
}

// Unlock ends the current hold, and returns by its deadline. It returns ErrNotHeld without a hold, and ErrLost if the hold had
// ended before. After either the Mutex can be locked again. What an ended ctx does is said at [Hold.Unlock]. See [Locker].
func (m *Mutex) Unlock(ctx context.Context) error {
	h := m.detach(nil)
	if h == nil {
		return m.refuse(ctx, opUnlock)
	}
	return h.Unlock(ctx)
}

// Extend makes the current hold last one TTL from now. It returns ErrNotHeld without a hold, and ErrLost for one that has
// ended. After any other error the old deadline stands. See [Locker].
func (m *Mutex) Extend(ctx context.Context) error {
	h := m.current()
	if h == nil {
		return m.refuse(ctx, opExtend)
	}
	return h.Extend(ctx)
}

// refuse makes a call that needs a hold and finds none.
func (m *Mutex) refuse(ctx context.Context, op string) error {
	return m.client.observed(ctx, op, m.name, func(context.Context) Result {
		return Result{Err: cmp.Or(m.invalid, ErrNotHeld)}
	})
}

// FencingToken returns the token of the current hold, and 0 when nothing is held: before Lock, after
// Unlock, and from the moment of a loss. See [Locker].
func (m *Mutex) FencingToken() uint64 {
	h := m.current()
	if h == nil || h.expireIfDue() != nil {
		return 0
	}
	return h.Token()
}

// Lost returns a channel that is closed when the current hold is lost, no later than its Deadline. Before Lock and after Unlock
// it returns nil, which blocks for ever. Each hold has its own channel: call Lost again after the next Lock.
func (m *Mutex) Lost() <-chan struct{} {
	h := m.current()
	if h == nil {
		return nil
	}
	return h.Lost()
}

// Deadline returns when the current hold expires unless it is extended, as [Hold.Deadline] does. Before Lock and after Unlock it
// returns the zero Time.
func (m *Mutex) Deadline() time.Time {
	h := m.current()
	if h == nil {
		return time.Time{}
	}
	return h.Deadline()
}

func (m *Mutex) current() *Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hold
}

// Do locks, calls f, waits for it, and unlocks. If Lock fails, Do returns its error and does not call f. The context of f is that of
// [Hold.Context] without a reserve: it ends with ctx, and when the hold is lost, then with cause ErrLost, no later than the hold's deadline.
// For a reserve call [Mutex.Context] in f, where FencingToken returns the token. Do returns f's error joined with that of Unlock, so that
// nil never hides a loss. If f panics, Do unlocks, and the panic goes on.
func (m *Mutex) Do(ctx context.Context, f func(context.Context) error) error {
	return m.do(ctx, opLock, f)
}

// TryDo is Do for a caller that does not wait: it makes one attempt, like TryLock. If another owner holds the lock, it returns ErrHeld
// and does not call f.
func (m *Mutex) TryDo(ctx context.Context, f func(context.Context) error) error {
	return m.do(ctx, opTryLock, f)
}

func (m *Mutex) do(ctx context.Context, op string, f func(context.Context) error) error {
	h, err := m.contend(ctx, op, (*contender).acquireOwn)
	if err != nil {
		return err
	}
	return h.during(ctx, f, func() error {
		m.detach(h) // unless f has unlocked, and another goroutine locked
		return h.Unlock(context.WithoutCancel(ctx))
	})
}
