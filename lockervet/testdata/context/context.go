package context

import (
	"context"
	"testing"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/election"
	"github.com/go-locker/locker/multi"
	"github.com/go-locker/locker/semaphore"
)

// request is like that of net/http.
type request struct{ ctx context.Context }

func (r request) Context() context.Context { return r.ctx }

func work(context.Context) error { return nil }

func outer(ctx context.Context, m *locker.Mutex) error {
	return m.Do(ctx, func(context.Context) error {
		return work(ctx) // want `ctx, which Do was given, does not end when the lock is lost: use the context that Do gives to its function`
	})
}

func outerBesideOwn(ctx context.Context, m *locker.RWMutex) error {
	_, err := m.TryDo(ctx, func(held context.Context) error {
		if err := work(held); err != nil {
			return err
		}
		return func() error { return work(ctx) }() // want `ctx, which TryDo was given`
	})
	return err
}

func ofARequest(r request, m *locker.RWMutex) error {
	return m.RDo(r.Context(), func(context.Context, *locker.Hold) error {
		return work(r.Context()) // want `r.Context\(\), which RDo was given`
	})
}

func background(m *locker.Mutex) error {
	return m.Join(context.Background(), func(_ context.Context, _ *locker.Hold) error {
		return work(context.Background()) // want `context.Background\(\) does not end when the lock is lost`
	})
}

func nested(ctx context.Context, a, b *locker.Mutex) error {
	return a.Do(ctx, func(context.Context) error {
		return b.Do(ctx, work) // want `ctx, which Do was given`
	})
}

func builtOnALock(ctx context.Context, e *election.Election, m *multi.Mutex, s *semaphore.Semaphore) {
	_ = e.Lead(ctx, 0, func(context.Context, uint64) {
		_ = work(ctx) // want `ctx, which Lead was given`
	})
	_ = m.Do(ctx, func(context.Context, *multi.Hold) error {
		return work(ctx) // want `ctx, which Do was given`
	})
	_ = s.Do(ctx, func(context.Context, *semaphore.Permit) error {
		return work(ctx) // want `ctx, which Do was given`
	})
}

// What is right.

func own(ctx context.Context, m *locker.Mutex) error {
	if err := work(ctx); err != nil {
		return err
	}
	return m.Do(ctx, func(ctx context.Context) error { return work(ctx) })
}

func afterTheLock(ctx context.Context, m *locker.Mutex) error {
	return m.Do(ctx, func(held context.Context) error {
		_ = work(context.WithoutCancel(ctx)) // said so
		go func() { _ = work(context.Background()) }()
		return work(held)
	})
}

func unlockInside(ctx context.Context, m *locker.Mutex) error {
	return m.Do(ctx, func(context.Context) error { return m.Unlock(ctx) })
}

func inATest(t *testing.T, m *locker.Mutex) {
	_ = m.Do(t.Context(), func(context.Context) error { return work(t.Context()) })
}

type other struct{}

func (other) Do(_ context.Context, f func(context.Context) error) error { return f(context.TODO()) }

func anothersDo(ctx context.Context) error {
	return other{}.Do(ctx, func(context.Context) error { return work(ctx) })
}
