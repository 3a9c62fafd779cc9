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
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/memory"
)

const ttl = 10 * time.Second

// client is a process of its own, in the space of t.
func client(t *testing.T, opts ...locker.Option) *locker.Client {
	t.Helper()
	d := memory.NewDriver(memory.InSpace(t.Name()))
	c, err := locker.New(d, append([]locker.Option{locker.WithTTL(ttl)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestQueue_servesWaitersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holder := client(t, locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, holder.Lock(t.Context()))
		var waiters []*locker.Mutex
		var locked []<-chan error
		for range 20 {
			m := client(t).Mutex("x")
			waiters = append(waiters, m)
			locked = append(locked, testwait.Go(func() error { return m.Lock(t.Context()) }))
			synctest.Wait()
		}
		last, due := holder.FencingToken(), time.Now().Add(ttl) // the holder expires
		for i, m := range waiters {
			require.NoError(t, <-locked[i])
			assert.Equal(t, due, time.Now(), "after the TTL, and then at each release")
			assert.Greater(t, m.FencingToken(), last)
			last = m.FencingToken()
			assert.Equal(t, ttl-ttl/100-2*time.Millisecond, time.Until(m.Hold().Deadline()), "a TTL")
			require.NoError(t, m.Unlock(t.Context()))
		}
		require.ErrorIs(t, holder.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestQueue_aGrantToAWaiterThatIsLeavingIsReturned(t *testing.T) {
	space := t.Name()
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			d := memory.NewDriver(memory.InSpace(space))
			req := driver.Request{Name: "x", TTL: ttl}
			held, err := claims.Take(t.Context(), d, req)
			require.NoError(t, err)
			waiting := req
			waiting.Wake = func() {}
			leaves := d.Claim(waiting)
			_, err = leaves.Ask(t.Context())
			require.ErrorIs(t, err, driver.ErrHeld)
			left := testwait.Go(func() error { return leaves.Release(t.Context()) })
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, <-left)
			next, err := claims.Take(t.Context(), d, req)
			require.NoError(t, err, "nobody holds it")
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// Who is granted the lock while it waits, and asks a while later, has it for a TTL from then.
func TestQueue_aGrantLastsFromTheRequestThatHearsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDriver(memory.InSpace(t.Name()))
		held, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: ttl})
		require.NoError(t, err)
		woken := 0
		waits := d.Claim(driver.Request{Name: "x", TTL: ttl, Wake: func() { woken++ }})
		_, err = waits.Ask(t.Context())
		require.ErrorIs(t, err, driver.ErrHeld)
		require.NoError(t, held.Release(t.Context()))
		assert.Equal(t, 1, woken)
		time.Sleep(ttl / 2)
		_, err = waits.Ask(t.Context())
		require.NoError(t, err)
		assert.Equal(t, ttl, waits.Validity())
	})
}

func TestCancelledWaiter_hasLeftWhenLockReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t)
		for range 200 {
			a, b := c.Mutex("x"), c.Mutex("x")
			require.NoError(t, a.Lock(t.Context()))
			ctx, cancel := context.WithCancel(t.Context())
			waiting := testwait.Go(func() error { return b.Lock(ctx) })
			synctest.Wait() // in the queue
			cancel()
			require.ErrorIs(t, <-waiting, context.Canceled)
			require.NoError(t, a.Unlock(t.Context()))
			require.NoError(t, b.TryLock(t.Context()), "nobody holds it, and nobody waits")
			require.NoError(t, b.Unlock(t.Context()))
		}
	})
}
