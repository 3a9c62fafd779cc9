package locker_test

import (
	"context"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// traced is a driver that notes who calls it.
type traced struct {
	*driver
	stack string
}

func (d *traced) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	d.stack = string(debug.Stack())
	return d.driver.Acquire(ctx, req)
}

func TestDriver_isCalledByTheGoroutineOfTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &traced{driver: &driver{b: b}}
		m := clientOf(t, d).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		assert.Contains(t, d.stack, "TestDriver_isCalled")
		require.NoError(t, m.Unlock(t.Context()))
	})
}

// The context of a release has ended when Unlock is over, and so is no burden to the Client, however that came about.
func TestUnlock_endsTheContextOfAReleaseThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &panicking{driver: &driver{b: b}}
		m := clientOf(t, d).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		assert.PanicsWithValue(t, "in Release", func() { _ = m.Unlock(t.Context()) })
		require.ErrorIs(t, d.released.Err(), context.Canceled)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrNotHeld)
	})
}

// panicking is a driver with a fault in Release.
type panicking struct {
	*driver
	released context.Context
}

type panickingLease struct {
	locker.Lease
	driver *panicking
}

func (d *panicking) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	l, err := d.driver.Acquire(ctx, req)
	return panickingLease{l, d}, err
}

func (l panickingLease) Release(ctx context.Context) error {
	_ = ctx.Done() // from here on the Client's own context knows of this one
	l.driver.released = ctx
	panic("in Release")
}
