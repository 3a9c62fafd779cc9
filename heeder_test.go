package locker_test

import (
	"context"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// heeder is a driver that returns when contexts end, and whose requests go on.
type heeder struct {
	*driver
	stack string // of the latest Acquire
}

type heedingLease struct{ locker.Lease }

func (d *heeder) HeedsContext() bool { return true }

// heeding calls f on a context of its own, and returns early with ctx.
func heeding(ctx context.Context, f func(context.Context) error) error {
	answer := make(chan error, 1)
	go func() { answer <- f(context.WithoutCancel(ctx)) }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *heeder) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	d.stack = string(debug.Stack())
	l := &lease{b: d.b, name: req.Name, ttl: req.TTL, from: time.Now()}
	err := heeding(ctx, func(ctx context.Context) error {
		_, err := d.b.send(ctx, call{op: acquire, name: req.Name, req: req}, func(fault) error { return d.b.take(l) })
		return err
	})
	return heedingLease{l}, err
}

func (l heedingLease) Release(ctx context.Context) error { return heeding(ctx, l.Lease.Release) }

func heedingClient(t *testing.T, b *backend) (*heeder, *locker.Client) {
	d := &heeder{driver: &driver{b: b}}
	return d, clientOf(t, d)
}

func TestHeeder_isCalledByTheGoroutineOfTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d, c := heedingClient(t, b)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		assert.Contains(t, d.stack, "TestHeeder_isCalled")
		require.NoError(t, m.Unlock(t.Context()))
		assert.Zero(t, b.holder("x"))
		assert.Len(t, b.calls(release), 1)
	})
}

func TestHeeder_ctxEndsWhileTheRequestIsOut(t *testing.T) {
	for name, try := range map[string]func(*locker.Mutex, context.Context) error{
		"lock": (*locker.Mutex).Lock, "try": (*locker.Mutex).TryLock,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) {
				_, c := heedingClient(t, b)
				b.next(acquire, fault{reply: 3 * time.Second})
				ctx := ending(t, time.Second)
				assert.Equal(t, time.Second, took(func() {
					err := try(c.Mutex("x"), ctx)
					interruptedBy(ctx, t, err)
					assert.NotErrorIs(t, err, locker.ErrHeld)
					assert.NotContains(t, err.Error(), "abandoned")
				}))
				synctest.Wait()
				assert.Zero(t, b.holder("x"), "what it had taken is released")
			})
		})
	}
}

// The driver is not waited for longer than TTL/2, nor when the Client closes.
func TestHeeder_isToldWhenItIsTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		_, c := heedingClient(t, b)
		b.every(acquire, hangs)
		assert.Equal(t, ttl/2, took(func() {
			require.ErrorContains(t, c.Mutex("x").TryLock(t.Context()), "has not answered in time")
		}))
		time.AfterFunc(time.Second, func() { _ = c.Close() })
		assert.Equal(t, time.Second, took(func() {
			require.ErrorIs(t, c.Mutex("x").Lock(t.Context()), locker.ErrClosed)
		}))
	})
}

// The context of a release has ended when Unlock is over, and so is no burden to the Client, however that came about.
func TestHeeder_endsTheContextOfAReleaseThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &panicking{heeder: &heeder{driver: &driver{b: b}}}
		m := clientOf(t, d).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		assert.PanicsWithValue(t, "in Release", func() { _ = m.Unlock(t.Context()) })
		require.ErrorIs(t, d.released.Err(), context.Canceled)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrNotHeld)
	})
}

// panicking is a driver with a fault in Release.
type panicking struct {
	*heeder
	released context.Context
}

type panickingLease struct {
	locker.Lease
	driver *panicking
}

func (d *panicking) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	l, err := d.heeder.Acquire(ctx, req)
	return panickingLease{l, d}, err
}

func (l panickingLease) Release(ctx context.Context) error {
	_ = ctx.Done() // from here on the Client's own context knows of this one
	l.driver.released = ctx
	panic("in Release")
}

func TestHeeder_unlock(t *testing.T) {
	lock := func(t *testing.T, b *backend) *locker.Mutex {
		_, c := heedingClient(t, b)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		return m
	}
	t.Run("is tried again", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *backend) {
			m := lock(t, b)
			b.next(release, away, away)
			require.NoError(t, m.Unlock(t.Context()))
			assert.Len(t, b.calls(release), 3)
		})
	})
	t.Run("fails as often as with any driver", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *backend) {
			m := lock(t, b)
			b.every(release, away)
			require.ErrorIs(t, m.Unlock(t.Context()), errRefused)
			assert.Len(t, b.calls(release), 3)
		})
	})
	t.Run("of a lock that was lost", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *backend) {
			m := lock(t, b)
			b.steal("x")
			require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
			assert.Len(t, b.calls(release), 1)
		})
	})
	t.Run("goes on when ctx ends", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *backend) {
			m := lock(t, b)
			b.next(release, hangs)
			ctx := ending(t, time.Second)
			assert.Equal(t, time.Second, took(func() { interruptedBy(ctx, t, m.Unlock(ctx)) }))
			time.Sleep(time.Second)
			assert.Zero(t, b.holder("x"))
		})
	})
	t.Run("with a ctx that has ended", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *backend) {
			m := lock(t, b)
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errShutdown)
			_ = m.Unlock(ctx)
			time.Sleep(time.Second)
			assert.Zero(t, b.holder("x"))
		})
	})
	t.Run("returns by the deadline", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *backend) {
			m := lock(t, b)
			b.every(release, hangs)
			assert.LessOrEqual(t, took(func() { require.ErrorContains(t, m.Unlock(t.Context()), "has not answered in time") }), life)
		})
	})
}

// heedingQueuer is a heeder that has a queue.
type heedingQueuer struct{ scripted }

func (d *heedingQueuer) HeedsContext() bool { return true }

// queueOf makes a client whose Lock waits in q, until ctx ends, and leaves a lease behind then.
func queueOf(t *testing.T, b *backend) *locker.Client {
	d := &heedingQueuer{scripted{driver: &driver{b: b}}}
	d.queue = func(ctx context.Context, req locker.Request, answered func(error)) (locker.Lease, error) {
		assert.Contains(t, string(debug.Stack()), "locker.(*Mutex).Lock")
		answered(locker.ErrHeld)
		<-ctx.Done()
		l, err := d.driver.Acquire(context.WithoutCancel(ctx), req)
		require.NoError(t, err)
		return l, ctx.Err()
	}
	return clientOf(t, d)
}

func TestHeeder_waitsInItsQueueInTheGoroutineOfTheCaller(t *testing.T) {
	t.Run("until ctx ends", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *backend) {
			m := queueOf(t, b).Mutex("x")
			ctx := ending(t, 3*ttl)
			assert.Equal(t, 3*ttl, took(func() {
				err := m.Lock(ctx)
				interruptedBy(ctx, t, err)
				assert.ErrorIs(t, err, locker.ErrHeld)
			}))
			synctest.Wait()
			assert.Zero(t, b.holder("x"), "what it had taken is released")
		})
	})
	t.Run("until the Client closes", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *backend) {
			c := queueOf(t, b)
			time.AfterFunc(time.Second, func() { _ = c.Close() })
			assert.Equal(t, time.Second, took(func() {
				require.ErrorIs(t, c.Mutex("x").Lock(t.Context()), locker.ErrClosed)
			}))
		})
	})
}
