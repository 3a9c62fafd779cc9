package locker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// Mutex is the lock of one name. It implements [Locker] with one [Hold] at a time. Make one with
// [Client.Mutex]; its zero value is of no use. It is not reentrant, except through [Mutex.Join].
//
// Several goroutines may use it, as they would a [sync.Mutex]: one of them holds it, or contends
// for it at the backend, and the others wait for that one, in the order in which they came.
type Mutex struct {
	lockID

	settings settings
	request  driver.Request
	invalid  error // why no method works

	outage  atomic.Pointer[outage] // in which the last call that asked has ended; Unlock clears it
	another atomic.Bool            // another owner had the lock, by the latest answer to a call that asks

	mu      sync.Mutex
	hold    *Hold        // from Lock until its Unlock, also when lost
	busy    bool         // from the beginning of a Lock until it has failed, or the Unlock of its hold
	waiting []chan error // goroutines that wait for their turn: nil is sent to one, or ErrLost to all
}

var _ Locker = (*Mutex)(nil)

// Guarantees returns what the backend promises: those of the Client.
func (m *Mutex) Guarantees() Guarantees { return m.client.Guarantees() }

// Lock waits until the lock is held or ctx is done. It returns ErrLost while a lost hold awaits its
// Unlock, ErrClosed if the Client is closed, and otherwise what [Locker] lists.
//
// If the backend is unreachable, Lock tries again for TTL/2, which counts from when the outage or
// this call began, whichever is later. Then it returns the client library's error. This is the same
// on every backend. If the backend answers the first request with an error, as it does to a wrong
// password, Lock makes at most three requests within 30 ms, and returns that error.
func (m *Mutex) Lock(ctx context.Context) error {
	_, err := m.contend(ctx, opLock, (*contender).acquireOwn)
	return err
}

// TryLock makes one attempt to take the lock, of TTL/2 at most. It returns ErrHeld if another owner
// holds the lock, or if another goroutine has this Mutex or waits for it. If the backend is
// unreachable, it makes at most three requests within 30 ms, and returns the client library's
// error. The last may take longer: go-redis dials several times by default, and the clients of etcd
// and ZooKeeper may wait for a connection until TTL/2 is over. Otherwise it is like Lock.
func (m *Mutex) TryLock(ctx context.Context) error {
	_, err := m.contend(ctx, opTryLock, (*contender).acquireOwn)
	return err
}

// Acquire waits like Lock, and returns a Hold that is independent of this Mutex and of the hold
// that its Lock takes. It ends with its own Unlock.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) {
	return m.contend(ctx, opLock, (*contender).acquire)
}

// TryAcquire makes one attempt, like TryLock, and returns a Hold, like Acquire.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) {
	return m.contend(ctx, opTryLock, (*contender).acquire)
}

// acquireOwn acquires a hold and makes it the Mutex's own, in its turn.
func (c *contender) acquireOwn() (h *Hold, err error) {
	m := c.mutex
	if err := c.takeTurn(); err != nil {
		return nil, err
	}
	defer func() {
		if h == nil { // also after a panic in the Driver
			m.mu.Lock()
			defer m.mu.Unlock()
			m.passTurn()
		}
	}()
	if h, err = c.acquire(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.mutex = m
	h.mu.Unlock()
	m.mu.Lock()
	m.hold = h
	m.mu.Unlock()
	if h.Err() != nil { // it may have been lost before it was the Mutex's
		m.lost(h)
	}
	return h, nil
}

// takeTurn waits until no other goroutine has, or contends for, the hold that is the Mutex's own:
// one of many contends at the backend. While a lost hold awaits its Unlock it returns ErrLost, also
// to those that wait already.
func (c *contender) takeTurn() error {
	m, closed := c.mutex, c.mutex.client.open
	if closed.Err() != nil {
		return ErrClosed
	}
	m.mu.Lock()
	if !m.busy {
		m.busy = true
		m.mu.Unlock()
		return nil
	}
	turn, h, began := make(chan error, 1), m.hold, clock.Now()
	if c.waits() {
		m.waiting = append(m.waiting, turn) // from here on a loss is sent to turn
	}
	m.mu.Unlock()
	why := c.refusedBeside(h)
	c.contended = why == nil || errors.Is(why, ErrHeld)
	if why == nil {
		if h != nil {
			h.want()
		}
		select {
		case err := <-turn:
			c.joinOutage(began)
			if m.another.Load() {
				c.latest = ErrHeld
			}
			return err
		case <-c.ctx.Done():
		case <-closed.Done():
		}
	}
	m.mu.Lock()
	if i := slices.Index(m.waiting, turn); i >= 0 {
		m.waiting = slices.Delete(m.waiting, i, i+1)
	} else if c.waits() && <-turn == nil {
		m.passTurn()
	}
	if m.hold != nil || m.another.Load() {
		c.latest = ErrHeld
	}
	m.mu.Unlock()
	// Without m.mu: ctx may be of a hold, and then its Err locks Hold.mu.
	return cmp.Or(why, c.over())
}

// refusedBeside returns why c does not wait for its turn beside own, the hold that there is or nil,
// or nil.
func (c *contender) refusedBeside(own *Hold) error {
	if own != nil {
		switch err := own.expireIfDue(); {
		case errors.Is(err, ErrLost):
			return ErrLost
		case err == nil && own.isShared() && !c.shares():
			return ErrUpgrade
		}
	}
	if !c.waits() {
		return ErrHeld
	}
	return nil
}

// passTurn ends a turn: the next is that of who has waited longest. The caller holds m.mu.
func (m *Mutex) passTurn() {
	m.busy = len(m.waiting) > 0
	if m.busy {
		m.waiting[0] <- nil
		m.waiting = slices.Delete(m.waiting, 0, 1)
	}
}

// lost ends the waiting of those who would lock this Mutex while its lost hold h awaits its Unlock.
func (m *Mutex) lost(h *Hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold != h {
		return
	}
	for _, turn := range m.waiting {
		turn <- ErrLost
	}
	m.waiting = nil
}

// detach makes h, or with nil whatever is held, the Mutex's own no longer, and returns what was.
func (m *Mutex) detach(h *Hold) *Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := m.hold
	if h != nil && current != h {
		return nil
	}
	if current != nil {
		m.hold = nil
		m.outage.Store(nil)
		m.passTurn()
	}
	return current
}

// Unlock ends the current hold, and returns by its deadline. It returns ErrNotHeld without a hold,
// and ErrLost if the hold had ended before. After either error the Mutex can be locked again.
// [Hold.Unlock] says what happens if ctx ends. See [Locker].
func (m *Mutex) Unlock(ctx context.Context) error {
	h := m.detach(nil)
	if h == nil {
		return m.refuse(ctx, opUnlock)
	}
	return h.Unlock(ctx)
}

// Extend makes the current hold last one TTL from now. It returns ErrNotHeld without a hold, and
// ErrLost for one that has ended. After any other error the old deadline stands. See [Locker].
func (m *Mutex) Extend(ctx context.Context) error {
	h := m.Hold()
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

// FencingToken returns the token of the current hold, and 0 when nothing is held: before Lock,
// after Unlock, and from the moment of a loss. See [Locker].
func (m *Mutex) FencingToken() uint64 {
	h := m.Hold()
	if h == nil || h.expireIfDue() != nil {
		return 0
	}
	return h.Token()
}

// Hold returns the current hold, also after its loss, or nil: before Lock, and after Unlock. Each
// Lock makes a new one.
func (m *Mutex) Hold() *Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hold
}

// Do locks, calls f, waits for it, and unlocks. If Lock fails, Do returns its error and does not
// call f. The context of f is that of [Hold.Context] without a reserve: it ends when ctx ends, or
// when the hold is lost, which is at the hold's deadline at the latest. After a loss the context's
// cause is [ErrLost]. If f, or a function that f calls with its context, would wait for the same
// lock, that call returns [ErrReentrant]: see [Mutex.Join]. If you need a reserve, call
// [Hold.Context] of [Mutex.Hold] in f. FencingToken returns the token there. If f panics, Do
// unlocks, and the panic goes on.
//
// Do returns f's error joined with that of Unlock, so that nil never hides a loss. If f returned
// ErrLost, too, the text of the error names the loss only once. The Op of the Error tells whether f
// ran. It is lock if the lock was not taken, and f was not called. It is unlock if f ran and the
// Unlock failed. If f takes other locks and returns their errors, look at Name, too, to tell them
// apart.
func (m *Mutex) Do(ctx context.Context, f func(context.Context) error) error {
	_, err := m.do(ctx, opLock, f)
	return err
}

// TryDo is Do for a caller that does not wait: it makes one attempt, like TryLock. ran tells
// whether f was called, and err is then that of Do. If another owner holds the lock, TryDo returns
// false and nil: nothing ran, and nothing has failed. If the attempt failed, it returns false and
// the error of TryLock. For a job that several machines start, see [AtLeast].
func (m *Mutex) TryDo(ctx context.Context, f func(context.Context) error) (ran bool, err error) {
	return unlessHeld(m.do(ctx, opTryLock, f))
}

// unlessHeld returns no error if nothing ran because another owner holds the lock.
func unlessHeld(ran bool, err error) (bool, error) {
	if !ran && errors.Is(err, ErrHeld) {
		return false, nil
	}
	return ran, err
}

func (m *Mutex) do(ctx context.Context, op string, f func(context.Context) error) (ran bool, err error) {
	h, err := m.contend(ctx, op, (*contender).acquireOwn)
	if err != nil {
		return false, err
	}
	return true, h.during(ctx, f, func() error {
		m.detach(h) // unless f has unlocked, and another goroutine locked
		return h.Unlock(context.WithoutCancel(ctx))
	})
}

// Join is Do for a function whose caller may have the lock already. If ctx carries a hold of this
// name, taken by this Client, Join calls f under that hold: without a request, and with the same
// token. The call that took the hold ends it: the end of Join releases nothing. If ctx carries
// none, Join takes the lock, as Acquire does, and releases it after f.
//
// A context carries a hold if Do, TryDo, RDo, TryRDo or Join gave it to its function, if
// [Hold.Context] returned it, or if it is derived from such a context. A hold of another name or of
// another Client does not count: Join then waits like anybody else.
//
// The h that f gets is the hold. Join does not make it the hold of this Mutex: FencingToken returns
// 0, unless this Mutex has a hold by its own Lock or Do. The context of f ends like that of Do. If
// Join took the lock itself, it returns f's error together with that of Unlock. If it used a hold
// that was there, it returns f's error together with [Hold.Err]: ErrLost or ErrNotHeld if the hold
// ended before f did. Hold.Err makes no request: it knows the clock, and what this process has
// heard. Whether the backend still has the hold is found out when the outer call unlocks.
//
// If the hold has ended, Join returns ErrLost or ErrNotHeld, and does not call f. It does not take
// a new hold, because the work so far and f would not be under one lock. So if a goroutine uses the
// context of a Do that has returned, its Join returns ErrNotHeld.
//
// Functions that have joined the same hold do not exclude each other. A share, as [RWMutex.RDo]
// takes it, is not joined: Join returns ErrUpgrade.
func (m *Mutex) Join(ctx context.Context, f func(ctx context.Context, h *Hold) error) error {
	h, err := m.carriedBy(ctx)
	if err != nil {
		return wrap("join", m.name, err)
	}
	end := func() error { return wrap("join", m.name, h.Err()) }
	if h == nil {
		if h, err = m.Acquire(ctx); err != nil {
			return err
		}
		end = func() error { return h.Unlock(context.WithoutCancel(ctx)) }
	}
	return h.during(ctx, func(ctx context.Context) error { return f(ctx, h) }, end)
}

// lockID identifies a lock of a Client.
type lockID struct {
	client *Client
	name   string
}

// Name returns the name of the lock, without the Client's prefix.
func (id *lockID) Name() string { return id.name }

// carriedBy returns the hold of this lock that ctx carries, or nil, or why it cannot be joined.
func (m *Mutex) carriedBy(ctx context.Context) (*Hold, error) {
	h := innermost(ctx).carried(m.lockID)
	if h == nil || m.invalid != nil {
		return nil, m.invalid
	}
	over := h.Err()
	if over == nil && h.isShared() {
		return nil, ErrUpgrade
	}
	if ctx.Err() != nil {
		return nil, interrupted(ctx, over)
	}
	return h, over
}

// during calls f with a context that ends with h, then calls end, and returns the errors of both.
// If f panics, end is called, and the panic goes on.
func (h *Hold) during(ctx context.Context, f func(context.Context) error, end func() error) (err error) {
	own, cancel := h.Context(ctx, 0)
	defer func() {
		cancel()
		ended := end()
		if loss, ok := errors.AsType[*lossError](ended); ok && errors.Is(err, loss) {
			e, _ := errors.AsType[*Error](ended)
			err = wrap(e.Op, e.Name, err) // f has returned the loss: report it once
		} else if ended != nil {
			err = errors.Join(err, ended)
		}
	}()
	return f(own)
}
