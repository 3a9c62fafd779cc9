package locker

import (
	"context"
	"time"
)

// Detach calls f in a goroutine, and returns when f does, or with ctx.Err() when ctx ends. It is for a Driver whose client library ignores
// contexts, or breaks its connection when one ends. The context of f has the values of ctx, and ends after limit.
func Detach(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	_, err := DetachAcquire(ctx, limit, func(own context.Context) (Lease, error) { return nil, f(own) })
	return err
}

// DetachAcquire is Detach for Acquire and AcquireQueued. If ctx ends first, the lease beside the error stands for what f may still
// take: its Release waits for f, and then releases that.
func DetachAcquire(ctx context.Context, limit time.Duration, f func(context.Context) (Lease, error)) (Lease, error) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	p := &pendingLease{limit: limit, done: make(chan struct{})}
	go func() {
		defer cancel()
		defer close(p.done)
		p.lease, p.err = f(own)
	}()
	select {
	case <-p.done:
		return p.lease, p.err
	case <-ctx.Done():
		return p, ctx.Err()
	}
}

// pendingLease is what a call that goes on may take.
type pendingLease struct {
	limit time.Duration
	done  chan struct{} // closed when the call has returned what follows
	lease Lease
	err   error
}

func (p *pendingLease) Token() uint64 { return 0 }

// Validity is above 0 while the call goes on, so that the core asks again.
func (p *pendingLease) Validity() time.Duration {
	select {
	case <-p.done:
	default:
		return p.limit
	}
	if p.lease == nil {
		return 0
	}
	return p.lease.Validity()
}

func (p *pendingLease) Extend(context.Context, time.Duration) error { return ErrLost }

// Release implements Lease.
func (p *pendingLease) Release(ctx context.Context) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.lease == nil {
		return nil
	}
	return p.lease.Release(ctx)
}
