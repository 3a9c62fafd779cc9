// Package keyed takes locks by name, for interfaces that name the lock in each call: Lock(ctx, name), Unlock(ctx, name).
//
//	locks := keyed.New(client)
//	if err := locks.Lock(ctx, "cert/example.com"); err != nil { … }
//	defer locks.Unlock(context.WithoutCancel(ctx), "cert/example.com")
//
// A storage of certificates, or a scheduler of jobs, wants that. Where the code that locks also unlocks, keep a [locker.Mutex] or a [locker.Hold]
// instead: anybody who knows the string can end a hold that is named by it.
package keyed

import (
	"context"
	"errors"
	"sync"

	"github.com/go-locker/locker"
)

// Locks is the locks of a Client, by name. Each method is that of a [locker.Mutex] of that name, of which a Locks has one while it is held or awaited, and
// none later. Make one with [New]. It may be used by several goroutines, and is not reentrant.
type Locks struct {
	client *locker.Client
	opts   []locker.MutexOption

	mu    sync.Mutex
	inUse map[string]*lock
}

// lock is one name that is held or awaited.
type lock struct {
	*locker.Mutex
	users int // who hold it, or wait for it
}

// New returns the locks of c, each with opts. It makes no request. An option that is not valid is reported by Lock and TryLock.
func New(c *locker.Client, opts ...locker.MutexOption) *Locks {
	return &Locks{client: c, opts: opts, inUse: map[string]*lock{}}
}

// Lock waits until the lock called name is held, or ctx is done. Who holds it already through this Locks waits like anybody else. While a lost hold
// of that name awaits its Unlock, Lock returns ErrLost. See [locker.Mutex.Lock].
func (l *Locks) Lock(ctx context.Context, name string) error {
	return l.take(ctx, name, (*locker.Mutex).Lock)
}

// TryLock makes one attempt, and returns ErrHeld if another owner holds the lock. See [locker.Mutex.TryLock].
func (l *Locks) TryLock(ctx context.Context, name string) error {
	return l.take(ctx, name, (*locker.Mutex).TryLock)
}

func (l *Locks) take(ctx context.Context, name string, take func(*locker.Mutex, context.Context) error) error {
	one := l.enter(name)
	err := take(one.Mutex, ctx)
	if err != nil {
		l.leave(name, one)
	}
	return err
}

// Unlock ends the hold of that name, also if another goroutine took it. It returns ErrNotHeld without one, and ErrLost if it had ended
// before. See [locker.Mutex.Unlock].
func (l *Locks) Unlock(ctx context.Context, name string) error {
	one := l.find(name)
	if one == nil {
		return notHeld("unlock", name)
	}
	err := one.Unlock(ctx)
	if !errors.Is(err, locker.ErrNotHeld) { // else another unlocked, or it is awaited
		l.leave(name, one)
	}
	return err
}

// Extend makes the hold of that name last one TTL from now, and tells of a loss: it returns ErrLost for one that has ended, and ErrNotHeld without
// one. See [locker.Mutex.Extend].
func (l *Locks) Extend(ctx context.Context, name string) error {
	one := l.find(name)
	if one == nil {
		return notHeld("extend", name)
	}
	return one.Extend(ctx)
}

// FencingToken returns the token of the hold of that name, and 0 when nothing is held. See [locker.Mutex.FencingToken].
func (l *Locks) FencingToken(name string) uint64 {
	one := l.find(name)
	if one == nil {
		return 0
	}
	return one.FencingToken()
}

func notHeld(op, name string) error {
	return &locker.Error{Op: op, Name: name, Err: locker.ErrNotHeld}
}

// enter counts a user of the lock called name, which it makes for the first. Each enter needs one leave.
func (l *Locks) enter(name string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.inUse[name]
	if one == nil {
		one = &lock{Mutex: l.client.Mutex(name, l.opts...)}
		l.inUse[name] = one
	}
	one.users++
	return one
}

func (l *Locks) leave(name string, one *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(l.inUse, name)
	}
}

func (l *Locks) find(name string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse[name]
}
