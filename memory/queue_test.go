package memory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/memory"
)

const ttl = 10 * time.Second

// took is how long f takes.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// inSpace runs a test in a bubble, over a space of its own. Each call of open is another process.
func inSpace(t *testing.T, f func(t *testing.T, open func(...locker.Option) *locker.Client)) {
	t.Helper()
	space := t.Name()
	synctest.Test(t, func(t *testing.T) {
		f(t, func(opts ...locker.Option) *locker.Client {
			c, err := locker.Open(t.Context(), "mem://"+space, append([]locker.Option{locker.WithTTL(ttl)}, opts...)...)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return c
		})
	})
}

// waiter is a Lock under way.
type waiter struct {
	*locker.Mutex
	cancel context.CancelFunc
	locked <-chan error
}

// waiters are n that came one after the other.
func waiters(t *testing.T, open func(...locker.Option) *locker.Client, n int) (ws []*waiter) {
	for range n {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		w := &waiter{Mutex: open().Mutex("x"), cancel: cancel}
		w.locked = testwait.Go(func() error { return w.Lock(ctx) })
		synctest.Wait()
		ws = append(ws, w)
	}
	return ws
}

func TestQueue_servesWaitersInOrder(t *testing.T) {
	inSpace(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
		ws := waiters(t, open, 20) // the first holds
		var last uint64
		for _, w := range ws {
			assert.Zero(t, took(func() { require.NoError(t, <-w.locked) }), "handed over at the release")
			assert.Greater(t, w.FencingToken(), last)
			last = w.FencingToken()
			assert.Equal(t, ttl-ttl/100-2*time.Millisecond, time.Until(w.Deadline()), "a TTL, but for the drift")
			require.NoError(t, w.Unlock(t.Context()))
		}
	})
}

func TestQueue_handsOverWhenTheHolderExpires(t *testing.T) {
	inSpace(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
		holder := open(locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, holder.Lock(t.Context()))
		ws := waiters(t, open, 2)
		assert.Equal(t, ttl, took(func() { require.NoError(t, <-ws[0].locked) }), "after the TTL and not before")
		require.ErrorIs(t, holder.Unlock(t.Context()), locker.ErrLost)
		synctest.Wait()
		assert.NotZero(t, ws[0].FencingToken())
		require.NoError(t, ws[0].Unlock(t.Context()))
		require.NoError(t, <-ws[1].locked)
	})
}

func TestQueue_waitsForAHolderThatExtends(t *testing.T) {
	inSpace(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
		holder := open(locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, holder.Lock(t.Context()))
		w := waiters(t, open, 1)[0]
		time.Sleep(ttl / 2)
		require.NoError(t, holder.Extend(t.Context()))
		assert.Equal(t, ttl, took(func() { require.NoError(t, <-w.locked) }))
	})
}

func TestQueue_aWaiterThatGivesUpLeavesTheQueue(t *testing.T) {
	inSpace(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
		ws := waiters(t, open, 4)
		require.NoError(t, <-ws[0].locked)
		ws[1].cancel()
		ws[2].cancel()
		for _, w := range ws[1:3] {
			err := <-w.locked
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, locker.ErrHeld)
		}
		synctest.Wait()
		require.NoError(t, ws[0].Unlock(t.Context()))
		assert.Zero(t, took(func() { require.NoError(t, <-ws[3].locked) }))
	})
}

func TestQueue_aWaiterCancelledAtItsGrant(t *testing.T) {
	for range 50 {
		inSpace(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
			ws := waiters(t, open, 3)
			require.NoError(t, <-ws[0].locked)
			go ws[1].cancel()
			require.NoError(t, ws[0].Unlock(t.Context()))
			if err := <-ws[1].locked; err == nil {
				require.NoError(t, ws[1].Unlock(t.Context()))
			}
			assert.Zero(t, took(func() { require.NoError(t, <-ws[2].locked) }), "the next one does not wait for an expiry")
			require.NoError(t, ws[2].Unlock(t.Context()))
		})
	}
}

func TestQueue_aGrantToAWaiterThatIsLeavingIsReturned(t *testing.T) {
	space := t.Name()
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			d := memory.NewDriver(memory.InSpace(space))
			req := driver.Request{Name: "x", TTL: ttl}
			held, err := d.Acquire(t.Context(), req)
			require.NoError(t, err)
			ctx, leave := context.WithCancel(t.Context())
			var granted driver.Lease
			left := testwait.Go(func() (err error) {
				granted, err = d.AcquireQueued(ctx, req, func(error) {})
				return err
			})
			synctest.Wait()
			leave()
			require.NoError(t, held.Release(t.Context()))
			if <-left == nil {
				require.NoError(t, granted.Release(t.Context()))
			}
			next, err := d.Acquire(t.Context(), req)
			require.NoError(t, err, "nobody holds it")
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

func TestQueue_aClosedClientLeavesItsQueues(t *testing.T) {
	inSpace(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
		holder, closing := open().Mutex("x"), open()
		require.NoError(t, holder.Lock(t.Context()))
		gone := testwait.Go(func() error { return closing.Mutex("x").Lock(t.Context()) })
		synctest.Wait()
		w := waiters(t, open, 1)[0]
		require.NoError(t, closing.Close())
		require.ErrorIs(t, <-gone, locker.ErrClosed)
		require.NoError(t, holder.Unlock(t.Context()))
		assert.Zero(t, took(func() { require.NoError(t, <-w.locked) }))
	})
}

func TestQueue_closeHandsOver(t *testing.T) {
	inSpace(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
		c := open()
		holder := c.Mutex("x")
		require.NoError(t, holder.Lock(t.Context()))
		w := waiters(t, open, 1)[0]
		require.NoError(t, c.Close())
		select {
		case <-holder.Lost():
		default:
			t.Error("not lost")
		}
		assert.Zero(t, took(func() { require.NoError(t, <-w.locked) }))
		require.ErrorIs(t, holder.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestCancelledWaiter_hasLeftWhenLockReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := locker.Open(t.Context(), "mem://"+t.Name())
		require.NoError(t, err)
		for range 200 {
			a, b := c.Mutex("x"), c.Mutex("x")
			require.NoError(t, a.Lock(t.Context()))
			ctx, cancel := context.WithCancel(t.Context())
			waiting := make(chan error)
			go func() { waiting <- b.Lock(ctx) }()
			synctest.Wait() // in the queue
			cancel()
			require.ErrorIs(t, <-waiting, context.Canceled)
			require.NoError(t, a.Unlock(t.Context()))
			require.NoError(t, b.TryLock(t.Context()), "nobody holds it, and nobody waits")
			require.NoError(t, b.Unlock(t.Context()))
		}
		require.NoError(t, c.Close())
	})
}
