package driver

import (
	"context"
	"time"
)

// Cleanup stands for what a failed attempt may have left at the backend, such as a place in its queue. Acquire and AcquireQueued return one
// beside their error where there is no Lease that would do. The core calls it until it returns nil or ErrLost, for at most one TTL.
type Cleanup func(ctx context.Context) error

// Token returns 0: nothing has been granted.
func (Cleanup) Token() uint64 { return 0 }

// Validity returns 0.
func (Cleanup) Validity() time.Duration { return 0 }

// Extend returns ErrLost.
func (Cleanup) Extend(context.Context, time.Duration) error { return ErrLost }

// Release calls f.
func (f Cleanup) Release(ctx context.Context) error { return f(ctx) }

// Detach calls f in a goroutine, and returns when f does, or with ctx.Err() when ctx ends. It is for a Driver whose client library ignores
// contexts, or breaks its connection when one ends. The context of f has the values of ctx, and ends after limit.
func Detach(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	_, err := DetachAcquire(ctx, limit, func(own context.Context) (Lease, error) { return nil, f(own) })
	return err
}

// DetachAcquire is Detach for Acquire and AcquireQueued. If ctx ends first, it returns a Cleanup that waits for f and releases what f has
// taken. limit is at most the TTL of the Request, for no Cleanup is tried for longer.
func DetachAcquire(ctx context.Context, limit time.Duration, f func(context.Context) (Lease, error)) (Lease, error) {
	var (
		lease Lease
		err   error
	)
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	done := make(chan struct{})
	go func() {
		defer cancel()
		defer close(done)
		lease, err = f(own)
	}()
	select {
	case <-done:
		return lease, err
	case <-ctx.Done():
	}
	return Cleanup(func(ctx context.Context) error {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if lease == nil {
			return nil
		}
		return lease.Release(ctx)
	}), ctx.Err()
}
