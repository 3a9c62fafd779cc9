package locker_test

import (
	"context"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// traced is a driver that notes who calls it.
type traced struct {
	*fakeDriver
	stack string
}

func (d *traced) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	d.stack = string(debug.Stack())
	return d.fakeDriver.Acquire(ctx, req)
}

func TestDriver_isCalledByTheGoroutineOfTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &traced{fakeDriver: &fakeDriver{b: b}}
		m := clientOf(t, d).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		assert.Contains(t, d.stack, "TestDriver_isCalled")
		require.NoError(t, m.Unlock(t.Context()))
	})
}

// The context of a release has ended when Unlock is over, and so is no burden to the Client, however that came about.
func TestUnlock_endsTheContextOfAReleaseThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &panicking{fakeDriver: &fakeDriver{b: b}}
		m := clientOf(t, d).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		assert.PanicsWithValue(t, "in Release", func() { _ = m.Unlock(t.Context()) })
		require.ErrorIs(t, d.released.Err(), context.Canceled)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrNotHeld)
	})
}

// panicking is a driver with a fault in Release.
type panicking struct {
	*fakeDriver
	released context.Context
}

type panickingLease struct {
	driver.Lease
	fakeDriver *panicking
}

func (d *panicking) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.fakeDriver.Acquire(ctx, req)
	return panickingLease{l, d}, err
}

func (l panickingLease) Release(ctx context.Context) error {
	_ = ctx.Done() // from here on the Client's own context knows of this one
	l.fakeDriver.released = ctx
	panic("in Release")
}
