package locker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// careful is a driver whose leases make no request on a context that has ended.
type careful struct{ *fakeDriver }

type carefulLease struct{ driver.Lease }

func (d *careful) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.fakeDriver.Acquire(ctx, req)
	return carefulLease{l}, err
}

func (l carefulLease) Release(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.Lease.Release(ctx)
}

func carefully(t *testing.T, b *backend) *locker.Mutex {
	m := clientOf(t, &careful{&fakeDriver{b: b}}).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	return m
}

// The next waiter is not to pay for it.
func TestUnlock_withACtxThatHasEndedReleasesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := carefully(t, b)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errShutdown)
		assert.Zero(t, took(func() {
			_ = m.Unlock(ctx)
			synctest.Wait()
		}))
		assert.Zero(t, b.holder("x"))
	})
}

// undying is a context that somebody has kept from ending, though not from having a deadline.
type undying struct{ context.Context }

func (undying) Done() <-chan struct{} { return nil }
func (undying) Err() error            { return nil }

func TestUnlock_isTriedAgainWhateverDeadlineItsCtxSays(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := carefully(t, b)
		b.next(release, hangs)
		assert.Less(t, took(func() { require.NoError(t, m.Unlock(undying{ending(t, time.Second)})) }), ttl/2)
		assert.Zero(t, b.holder("x"))
	})
}

// told is a context of somebody's own that counts who is to be told of its end.
type told struct {
	context.Context

	whom atomic.Int32
}

// AfterFunc is called by package context.
func (c *told) AfterFunc(f func()) func() bool {
	c.whom.Add(1)
	forget := context.AfterFunc(c.Context, f)
	return func() bool {
		c.whom.Add(-1)
		return forget()
	}
}

// Value hides the contexts that package context knows.
func (c *told) Value(any) any { return nil }

// What outlives its calls, as the context of a whole program does, is not to gather them.
func TestCalls_leaveNothingBehindInTheirContext(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c, ctx := b.client(t), &told{Context: t.Context()}
		h, err := c.Mutex("x").TryAcquire(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld)
		require.NoError(t, h.Extend(ctx))
		require.NoError(t, h.Unlock(ctx))
		synctest.Wait()
		assert.Zero(t, ctx.whom.Load())
	})
}
