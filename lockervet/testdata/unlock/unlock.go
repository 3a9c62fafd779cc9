package unlock

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/keyed"
	"github.com/go-locker/locker/multi"
	"github.com/go-locker/locker/semaphore"
)

func work() error { return nil }

func dropped(ctx context.Context, m *locker.Mutex, h *locker.Hold, l locker.Locker, k *keyed.Locks, p *semaphore.Permit, a *multi.Hold) {
	m.Unlock(ctx)       // want `the error of m.Unlock is dropped`
	defer h.Unlock(ctx) // want `the error of h.Unlock is dropped`
	go l.Unlock(ctx)    // want `the error of l.Unlock is dropped`
	k.Unlock(ctx, "x")  // want `the error of k.Unlock is dropped`
	p.Unlock(ctx)       // want `the error of p.Unlock is dropped`
	a.Unlock(ctx)       // want `the error of a.Unlock is dropped`
	_ = m.Unlock(ctx)
	defer func() { _ = m.Unlock(ctx) }()
}

func droppedBefore(ctx context.Context, m *locker.Mutex, rw *locker.RWMutex, k *keyed.Locks, s *semaphore.Semaphore) {
	m.Lock(ctx)                                                              // want `the error of m.Lock is dropped: it says if the lock is held`
	m.TryLock(ctx)                                                           // want `the error of m.TryLock is dropped`
	k.TryLock(ctx, "x")                                                      // want `the error of k.TryLock is dropped`
	go rw.RLock(ctx)                                                         // want `the error of rw.RLock is dropped`
	m.Do(ctx, func(context.Context) error { return nil })                    // want `the error of m.Do is dropped: it says if the function ran`
	m.TryDo(ctx, func(context.Context) error { return nil })                 // want `the error of m.TryDo is dropped`
	s.Do(ctx, func(context.Context, *semaphore.Permit) error { return nil }) // want `the error of s.Do is dropped`
	_ = m.TryLock(ctx)
}

func fresh(ctx context.Context, client *locker.Client) error {
	_ = client.RWMutex("x").Unlock(ctx)                                            // want `Unlock of a Mutex that was just made and holds nothing`
	return errors.Join(client.Mutex("x").Unlock(ctx), client.Mutex("x").Lock(ctx)) // want `Unlock of a Mutex that was just made`
}

func limited(ctx context.Context, m *locker.Mutex) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := m.Lock(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Unlock(ctx)) }() // want `ctx may have ended when this runs`
	return work()
}

func interrupted(m *locker.Mutex) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = h.Unlock(ctx) }() // want `ctx may have ended when this runs`
	return work()
}

func cleanup(t *testing.T, m *locker.Mutex) {
	t.Cleanup(func() { _ = m.Unlock(t.Context()) }) // want `t.Context\(\) has ended when a Cleanup runs`
	t.Cleanup(func() { _ = m.Unlock(context.WithoutCancel(t.Context())) })
	defer func() { _ = m.Unlock(t.Context()) }()
}

func leaks(ctx context.Context, m *locker.Mutex) error {
	if err := m.Lock(ctx); err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	return m.Unlock(ctx) // want `m.Unlock is not deferred: the return at line 78 leaves the lock taken`
}

func leaksAHold(ctx context.Context, m *locker.Mutex) error {
	h, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	switch err := work(); {
	case err != nil:
		return err
	}
	if err := h.Unlock(ctx); err != nil { // want `h.Unlock is not deferred`
		return err
	}
	return nil
}

func leaksATry(ctx context.Context, m *locker.Mutex) error {
	err := m.TryLock(ctx)
	if errors.Is(err, locker.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	return m.Unlock(ctx) // want `m.Unlock is not deferred`
}

func leaksATriedHold(ctx context.Context, m *locker.RWMutex) error {
	h, err := m.TryRAcquire(ctx)
	switch {
	case errors.Is(err, locker.ErrHeld):
		return nil
	case err != nil:
		return err
	}
	if err = work(); err != nil {
		return err
	}
	return h.Unlock(ctx) // want `h.Unlock is not deferred`
}

func leaksInTheBranch(ctx context.Context, m *locker.Mutex) error {
	if err := m.TryLock(ctx); err == nil {
		if err := work(); err != nil {
			return err
		}
		return m.Unlock(ctx) // want `m.Unlock is not deferred`
	}
	h, err := m.TryAcquire(ctx)
	if err == nil {
		if err := work(); err != nil {
			return err
		}
		return h.Unlock(ctx) // want `h.Unlock is not deferred`
	}
	return err
}

func dropsTheHold(ctx context.Context, m *locker.Mutex, s *semaphore.Semaphore) error {
	m.Acquire(ctx)              // want `the hold of m.Acquire is dropped: nobody can unlock it`
	_, _ = s.TryAcquire(ctx)    // want `the hold of s.TryAcquire is dropped`
	_, err := m.TryAcquire(ctx) // want `the hold of m.TryAcquire is dropped`
	return err
}

// What is right.

func triedFirst(ctx context.Context, m *locker.Mutex) error {
	if err := m.TryLock(ctx); err == nil {
		return errors.Join(work(), m.Unlock(ctx))
	}
	err := m.TryLock(ctx)
	if err == nil {
		return errors.Join(work(), m.Unlock(ctx))
	}
	if err := m.TryLock(ctx); !errors.Is(err, locker.ErrHeld) {
		return err
	}
	if err := m.Lock(ctx); err != nil {
		return err
	}
	_ = work()
	return m.Unlock(ctx)
}

func deferred(ctx context.Context, m *locker.Mutex) (err error) {
	if err := m.Lock(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Unlock(context.WithoutCancel(ctx))) }()
	return work()
}

func straight(ctx context.Context, m *locker.Mutex) error {
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	err := m.Lock(bounded)
	cancel()
	if err != nil {
		return err
	}
	err = work()
	return errors.Join(err, m.Unlock(ctx))
}

func handsOver(ctx context.Context, m *locker.Mutex) (*locker.Hold, error) {
	h, err := m.TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	if ctx.Err() == nil {
		return h, nil
	}
	return nil, h.Unlock(ctx)
}

func everyReturn(ctx context.Context, m *locker.Mutex) error {
	if err := m.Lock(ctx); err != nil {
		return err
	}
	if err := work(); err != nil {
		return errors.Join(err, m.Unlock(ctx))
	}
	return m.Unlock(ctx)
}

func another(ctx context.Context, a, b *locker.Mutex) error {
	if err := a.Lock(ctx); err != nil {
		return err
	}
	return b.Unlock(ctx)
}
