// Package keyed takes locks by name, for interfaces that name the lock in each call: Lock(ctx,
// name), Unlock(ctx, name).
//
//	locks := keyed.New(client)
//	if err := locks.Lock(ctx, "cert/example.com"); err != nil { … }
//	defer locks.Unlock(context.WithoutCancel(ctx), "cert/example.com")
//
// Storages of certificates and schedulers of jobs have such interfaces. If the code that locks also
// unlocks, use a [locker.Mutex] or a [locker.Hold] instead: a hold of this package can be ended by
// any code that knows its name.
package keyed

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
)

// Locks is the locks of a Client, by name. A name that is neither held nor awaited costs nothing.
// Make one with [New]. It may be used by several goroutines, and is not reentrant: after a
// successful Lock or TryLock, no other caller of this Locks gets that name until its Unlock, even
// after a loss. So no other goroutine can take the name between a loss and the Unlock. Otherwise
// this Unlock would end the other goroutine's hold.
type Locks struct {
	client *locker.Client
	opts   []locker.MutexOption

	mu    sync.Mutex
	inUse map[string]*lock
}

// lock is one name that is held or awaited.
type lock struct {
	*locker.Mutex
	users  int           // those who wait for their turn, or have it
	turn   chan struct{} // full while somebody contends, and from then until Unlock
	failed bool          // the last turn ended without a hold; of whose turn it is
	hold   *locker.Hold  // from Lock to Unlock, also when lost
}

// New returns the locks of c, each with opts. It makes no request. An option that is not valid is
// reported by Lock and TryLock.
func New(c *locker.Client, opts ...locker.MutexOption) *Locks {
	return &Locks{client: c, opts: opts, inUse: map[string]*lock{}}
}

// Lock waits until the lock called name is held, or ctx is done, or the Client is closed. If other
// callers of this Locks hold the name or wait for it, Lock first waits for them, in order, without
// a request. See [locker.Mutex.Acquire].
func (l *Locks) Lock(ctx context.Context, name string) error {
	one, began := l.enter(name), clock.Now()
	select {
	case one.turn <- struct{}{}:
		if one.failed {
			ctx = noanswer.WithStart(ctx, began)
		}
		hold, err := one.Acquire(ctx)
		return l.took(one, hold, err)
	case <-ctx.Done():
	case <-l.client.Closed():
	}
	defer l.leave(one)
	_, err := one.Acquire(ctx) // it makes no request, because ctx or the Client has ended
	if e, ok := errors.AsType[*locker.Error](err); ok && ctx.Err() != nil && l.FencingToken(name) != 0 {
		err = failed(e.Op, name, fmt.Errorf("%w: %w", e.Err, locker.ErrHeld))
	}
	return err
}

// TryLock makes one attempt. It returns ErrHeld if another owner holds the lock, or others of this
// Locks hold or await it, and ErrClosed if the Client is closed. See [locker.Mutex.TryAcquire].
func (l *Locks) TryLock(ctx context.Context, name string) error {
	one := l.enter(name)
	select {
	case one.turn <- struct{}{}:
	default:
		l.leave(one)
		err := locker.ErrHeld
		select {
		case <-l.client.Closed():
			err = locker.ErrClosed
		default:
		}
		return failed("trylock", name, err)
	}
	hold, err := one.TryAcquire(ctx)
	return l.took(one, hold, err)
}

// took makes hold that of one, whose turn the caller has, or gives the turn back.
func (l *Locks) took(one *lock, hold *locker.Hold, err error) error {
	one.failed = err != nil
	if err != nil {
		<-one.turn
		l.leave(one)
		return err
	}
	l.replace(one, nil, hold)
	return nil
}

// Unlock ends the hold of that name, also if another goroutine took it. Then the next goroutine
// that waits in this Locks may ask for the lock. It returns ErrNotHeld if there is no hold, and
// ErrLost if the hold had ended before. See [locker.Hold.Unlock].
func (l *Locks) Unlock(ctx context.Context, name string) error {
	one, hold := l.find(name)
	if hold == nil || !l.replace(one, hold, nil) {
		return failed("unlock", name, locker.ErrNotHeld)
	}
	err := hold.Unlock(ctx)
	<-one.turn
	l.leave(one)
	return err
}

// Extend makes the hold of that name last one TTL from now. It returns ErrLost if the hold has
// ended, and ErrNotHeld if there is none. See [locker.Hold.Extend].
func (l *Locks) Extend(ctx context.Context, name string) error {
	_, hold := l.find(name)
	if hold == nil {
		return failed("extend", name, locker.ErrNotHeld)
	}
	return hold.Extend(ctx)
}

// Relock waits until a lock that was lost is held again, under a new token, or ctx is done. Others
// may have held the lock meanwhile, so the caller looks again at what is left to do. After an error
// the lost hold still awaits its Unlock, or another Relock. If the hold was not lost, Relock does
// nothing. If there is none, it returns ErrNotHeld.
func (l *Locks) Relock(ctx context.Context, name string) error {
	one, hold := l.find(name)
	if hold == nil {
		return failed("relock", name, locker.ErrNotHeld)
	}
	if err := hold.Err(); !errors.Is(err, locker.ErrLost) {
		return err
	}
	again, err := one.Acquire(ctx)
	if err != nil {
		return err
	}
	unlocked := context.WithoutCancel(ctx)
	if !l.replace(one, hold, again) {
		_ = again.Unlock(unlocked)
		return failed("relock", name, locker.ErrNotHeld)
	}
	_ = hold.Unlock(unlocked) // ErrLost; it does not wait for a request
	return nil
}

// FencingToken returns the token of the hold of that name, and 0 when nothing is held: before Lock,
// after Unlock, and from the moment of a loss. It makes no request.
func (l *Locks) FencingToken(name string) uint64 {
	_, hold := l.find(name)
	if hold == nil || hold.Err() != nil {
		return 0
	}
	return hold.Token()
}

func failed(op, name string, why error) error {
	return &locker.Error{Op: op, Name: name, Err: why}
}

// enter counts a user of the lock called name, which it makes for the first. Each enter needs one
// leave.
func (l *Locks) enter(name string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.inUse[name]
	if one == nil {
		one = &lock{Mutex: l.client.Mutex(name, l.opts...), turn: make(chan struct{}, 1)}
		l.inUse[name] = one
	}
	one.users++
	return one
}

func (l *Locks) leave(one *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(l.inUse, one.Name())
	}
}

// find returns the lock called name and its hold, or nil.
func (l *Locks) find(name string) (*lock, *locker.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.inUse[name]
	if one == nil {
		return nil, nil
	}
	return one, one.hold
}

// replace makes a hold that of one, unless another than old is that already.
func (l *Locks) replace(one *lock, old, hold *locker.Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.hold != old {
		return false
	}
	one.hold = hold
	return true
}
