package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/memory"
)

// inMemory runs a test in a bubble, over a space of its own. Each call of open is another process.
func inMemory(t *testing.T, f func(t *testing.T, open func(...locker.Option) *locker.Client)) {
	t.Helper()
	space := t.Name()
	synctest.Test(t, func(t *testing.T) {
		f(t, func(opts ...locker.Option) *locker.Client {
			return clientOf(t, memory.NewDriver(memory.InSpace(space)), opts...)
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
		w.locked = inBackground(func() error { return w.Lock(ctx) })
		synctest.Wait()
		ws = append(ws, w)
	}
	return ws
}

func TestMemory_servesWaitersInOrder(t *testing.T) {
	inMemory(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
		ws := waiters(t, open, 20) // the first holds
		var last uint64
		for _, w := range ws {
			assert.Zero(t, took(func() { require.NoError(t, <-w.locked) }), "handed over at the release")
			assert.Greater(t, w.FencingToken(), last)
			last = w.FencingToken()
			assert.Equal(t, life, time.Until(w.Deadline()))
			require.NoError(t, w.Unlock(t.Context()))
		}
	})
}

func TestMemory_handsOverWhenTheHolderLapses(t *testing.T) {
	inMemory(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
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

func TestMemory_waitsForAHolderThatExtends(t *testing.T) {
	inMemory(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
		holder := open(locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, holder.Lock(t.Context()))
		w := waiters(t, open, 1)[0]
		time.Sleep(ttl / 2)
		require.NoError(t, holder.Extend(t.Context()))
		assert.Equal(t, ttl, took(func() { require.NoError(t, <-w.locked) }))
	})
}

func TestMemory_aWaiterThatGivesUpLeavesTheQueue(t *testing.T) {
	inMemory(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
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

func TestMemory_aWaiterCancelledAtItsGrant(t *testing.T) {
	for range 50 {
		inMemory(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
			ws := waiters(t, open, 3)
			require.NoError(t, <-ws[0].locked)
			go ws[1].cancel()
			require.NoError(t, ws[0].Unlock(t.Context()))
			if err := <-ws[1].locked; err == nil {
				require.NoError(t, ws[1].Unlock(t.Context()))
			}
			assert.Zero(t, took(func() { require.NoError(t, <-ws[2].locked) }), "the next one does not wait for a lapse")
			require.NoError(t, ws[2].Unlock(t.Context()))
		})
	}
}

func TestMemory_aGrantToAWaiterThatIsLeavingIsReturned(t *testing.T) {
	space := t.Name()
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			d := memory.NewDriver(memory.InSpace(space))
			req := locker.Request{Name: "x", TTL: ttl}
			held, err := d.Acquire(t.Context(), req)
			require.NoError(t, err)
			ctx, leave := context.WithCancel(t.Context())
			var granted locker.Lease
			left := inBackground(func() (err error) {
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

func TestMemory_aClosedClientLeavesItsQueues(t *testing.T) {
	inMemory(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
		holder, closing := open().Mutex("x"), open()
		require.NoError(t, holder.Lock(t.Context()))
		gone := inBackground(func() error { return closing.Mutex("x").Lock(t.Context()) })
		synctest.Wait()
		w := waiters(t, open, 1)[0]
		require.NoError(t, closing.Close())
		require.ErrorIs(t, <-gone, locker.ErrClosed)
		require.NoError(t, holder.Unlock(t.Context()))
		assert.Zero(t, took(func() { require.NoError(t, <-w.locked) }))
	})
}

func TestMemory_closeHandsOver(t *testing.T) {
	inMemory(t, func(t *testing.T, open func(...locker.Option) *locker.Client) {
		c := open()
		holder := c.Mutex("x")
		require.NoError(t, holder.Lock(t.Context()))
		w := waiters(t, open, 1)[0]
		require.NoError(t, c.Close())
		assert.True(t, fired(holder.Lost()))
		assert.Zero(t, took(func() { require.NoError(t, <-w.locked) }))
		require.ErrorIs(t, holder.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestMemory_spacesAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, url := range []string{"mem://apart-1", "mem://apart-2/"} {
			c, err := locker.Open(t.Context(), url+"?require=exclusive,fencing,ordered,woken")
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			again, err := locker.Open(t.Context(), url)
			require.NoError(t, err)
			t.Cleanup(func() { _ = again.Close() })
			require.NoError(t, c.Mutex("x").TryLock(t.Context()))
			require.ErrorIs(t, again.Mutex("x").TryLock(t.Context()), locker.ErrHeld)
		}
	})
}

func TestMemory_refusesWhatItDoesNotHave(t *testing.T) {
	for _, url := range []string{"mem://h:1", "mem://h1,h2", "mem://u:secret@h", "mem://h/path", "mem://h?color=red", "mem://h?require=failover"} {
		_, err := locker.Open(t.Context(), url)
		require.Error(t, err, url)
		assert.NotContains(t, err.Error(), "secret")
	}
}

// The lock has gone to another, who keeps it: a goroutine that waits on the Mutex whose hold was lost hears
// of the loss, and not only when its turn comes.
func TestLock_thatWaitsHearsOfItsMutexsLoss(t *testing.T) {
	for name, url := range map[string]string{"queue": "mem://pending", "after an Unlock in between": "mem://pending-2"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := locker.Open(t.Context(), url, locker.WithTTL(10*time.Second), locker.WithoutRenewal())
				require.NoError(t, err)
				defer c.Close()
				m, other := c.Mutex("x"), c.Mutex("x", locker.WithTTL(time.Hour))
				require.NoError(t, m.Lock(t.Context()))
				if name != "queue" {
					require.NoError(t, m.Unlock(t.Context()))
					require.NoError(t, m.Lock(t.Context()))
				}
				taken := make(chan error, 1)
				go func() { taken <- other.Lock(t.Context()) }()
				synctest.Wait()
				waiting := make(chan error, 1)
				go func() { waiting <- m.Lock(t.Context()) }()
				start := time.Now()
				require.ErrorIs(t, <-waiting, locker.ErrLost)
				assert.LessOrEqual(t, time.Since(start), 10*time.Second+time.Millisecond)
				require.NoError(t, <-taken)
				require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.ErrorIs(t, m.Lock(ctx), locker.ErrHeld, "the loss is dealt with, and Lock waits again")
				require.NoError(t, other.Unlock(t.Context()))
				require.NoError(t, m.Lock(t.Context()))
				require.NoError(t, m.Unlock(t.Context()))
			})
		})
	}
}
