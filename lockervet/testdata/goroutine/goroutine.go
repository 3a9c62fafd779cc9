package goroutine

import (
	"context"
	"sync"

	"github.com/go-locker/locker"
)

func write(context.Context, uint64) {}

func outlives(ctx context.Context, m *locker.Mutex) error {
	return m.Do(ctx, func(ctx context.Context) error {
		go write(ctx, m.FencingToken()) // want `this goroutine uses the lock and may outlive it: Do unlocks when its function returns`
		return nil
	})
}

func outlivesTheHold(ctx context.Context, m *locker.Mutex) error {
	return m.Join(ctx, func(_ context.Context, h *locker.Hold) error {
		done := make(chan struct{})
		go func() { // want `this goroutine uses the lock and may outlive it: Join`
			<-h.Lost()
			close(done)
		}()
		return nil
	})
}

// What is right.

func waitsByGroup(ctx context.Context, m *locker.Mutex) error {
	return m.Do(ctx, func(ctx context.Context) error {
		var all sync.WaitGroup
		all.Add(1)
		go func() {
			defer all.Done()
			write(ctx, m.FencingToken())
		}()
		all.Wait()
		return nil
	})
}

func waitsByChannel(ctx context.Context, m *locker.Mutex) error {
	return m.Do(ctx, func(ctx context.Context) error {
		done := make(chan error, 1)
		go func() { write(ctx, 1); done <- nil }()
		return <-done
	})
}

func waitsElsewhere(ctx context.Context, m *locker.Mutex, await func(chan error) error) error {
	return m.Do(ctx, func(ctx context.Context) error {
		done := make(chan error, 1)
		go func() { write(ctx, 1); done <- nil }()
		return await(done)
	})
}

func hasNothingToDoWithTheLock(ctx context.Context, m *locker.Mutex) error {
	return m.Do(ctx, func(context.Context) error {
		go println("granted")
		return nil
	})
}
