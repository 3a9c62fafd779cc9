package core_test

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// A hold is lost while another goroutine's attempt is out: that ends with the loss, not with the attempt.
func TestLock_lossEndsAnAttempt(t *testing.T) {
	for name, try := range map[string]func(*locker.Mutex, context.Context) error{
		"lock": (*locker.Mutex).Lock, "try": (*locker.Mutex).TryLock,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) {
				c := b.client(t)
				m := c.Mutex("x", locker.WithoutRenewal())
				require.NoError(t, m.Lock(t.Context()))
				time.Sleep(life - time.Second)
				b.next(acquire, hangs)
				assert.Equal(t, time.Second, took(func() { require.ErrorIs(t, try(m, t.Context()), locker.ErrLost) }))
				require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
				require.NoError(t, m.Lock(t.Context()))
				require.NoError(t, m.Unlock(t.Context()))
			})
		})
	}
}

// The end of ctx is no failure of the backend, and does not hide what that has said last.
func TestLock_endOfCtxIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		require.NoError(t, c.Mutex("x").Lock(t.Context()))
		ctx := ending(t, 3*time.Second)
		time.AfterFunc(2*time.Second, func() { b.next(acquire, hangs) })
		err := c.Mutex("x").Lock(ctx)
		interruptedBy(ctx, t, err)
		require.ErrorIs(t, err, locker.ErrHeld)
		assert.NotContains(t, err.Error(), "not answered")
	})
}

// generous returns the whole TTL as the validity of its leases.
type generous struct{ *fakeDriver }

type generousLease struct{ driver.Lease }

func (generousLease) Validity() time.Duration { return ttl }

func (d generous) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.fakeDriver.Acquire(ctx, req)
	return generousLease{l}, err
}

func TestLock_deadlineOfAGenerousLeaseCountsFromBeforeTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := clientOf(t, generous{&fakeDriver{b: b}})
		m, start := c.Mutex("x"), time.Now()
		b.next(acquire, fault{reply: 3 * time.Second})
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, life, m.Deadline().Sub(start))
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestUnlock_justBeforeTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		m := c.Mutex("x", locker.WithoutRenewal())
		require.NoError(t, m.Lock(t.Context()))
		time.Sleep(life - 100*time.Millisecond)
		b.every(release, hangs)
		assert.LessOrEqual(t, took(func() { require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost) }), 100*time.Millisecond)
	})
}

func TestClose_endsAnUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		m := c.Mutex("x", locker.WithTTL(time.Minute))
		require.NoError(t, m.Lock(t.Context()))
		b.every(release, hangs)
		unlocked := inBackground(func() error { return m.Unlock(context.Background()) })
		time.Sleep(time.Second)
		require.NoError(t, c.Close(), "it has waited for nothing in vain")
		require.Error(t, <-unlocked)
	})
}

// However long an attempt takes, the pauses between two are bounded.
func TestLock_pausesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		require.NoError(t, c.Mutex("x").Lock(t.Context()))
		b.every(acquire, fault{reply: 2 * time.Second})
		require.ErrorIs(t, c.Mutex("x").Lock(ending(t, time.Minute)), locker.ErrHeld)
		assert.Greater(t, len(b.calls(acquire)), 18)
	})
}

// Losses of a Mutex in a row: each ends what waits then, and nothing that comes after its Unlock.
func TestLock_lossesInARow(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		m := c.Mutex("x", locker.WithoutRenewal())
		for range 3 {
			require.NoError(t, m.Lock(t.Context()))
			waits := inBackground(func() error { return m.Lock(context.Background()) })
			time.Sleep(time.Second)
			b.steal("x")
			time.Sleep(time.Second)
			require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
			require.ErrorIs(t, <-waits, locker.ErrLost)
			require.ErrorIs(t, m.Lock(t.Context()), locker.ErrLost)
			require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
			b.free("x")
		}
	})
}

// Who began to wait under an earlier hold hears of the loss of this one, too.
func TestLock_lossOfALaterHoldEndsAnAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		m := c.Mutex("x", locker.WithoutRenewal())
		require.NoError(t, m.Lock(t.Context()))
		b.next(acquire, hangs)
		waits := inBackground(func() error { return m.Lock(context.Background()) })
		time.Sleep(time.Second)
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, m.Lock(t.Context()))
		b.steal("x")
		require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		assert.Zero(t, took(func() { require.ErrorIs(t, <-waits, locker.ErrLost) }))
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		b.free("x")
	})
}
