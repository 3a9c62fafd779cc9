package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestHold_neverSpeaksForItsSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x")
		first, err := m.Acquire(t.Context())
		require.NoError(t, err)
		deadline := first.Deadline()
		require.NoError(t, first.Unlock(t.Context()))
		time.Sleep(time.Second)
		second, err := m.TryAcquire(t.Context())
		require.NoError(t, err)

		assert.EqualValues(t, 1, first.Token(), "its own, for ever")
		assert.EqualValues(t, 2, second.Token())
		assert.Equal(t, deadline, first.Deadline())
		require.ErrorIs(t, first.Extend(t.Context()), locker.ErrNotHeld)
		require.ErrorIs(t, first.Unlock(t.Context()), locker.ErrNotHeld)
		assert.Equal(t, second.Token(), b.holder("x"))

		b.steal("x")
		require.ErrorIs(t, second.Extend(t.Context()), locker.ErrLost)
		assert.True(t, fired(second.Lost()))
		assert.False(t, fired(first.Lost()))
	})
}

func TestHold_thatWasLostLeavesItsSuccessorAlone(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t, locker.WithoutRenewal()).Mutex("x")
		first, err := m.Acquire(t.Context())
		require.NoError(t, err)
		<-first.Lost()
		second, err := m.Acquire(t.Context())
		require.NoError(t, err, "a lost Hold does not keep its Mutex from acquiring")
		require.ErrorIs(t, first.Extend(t.Context()), locker.ErrLost)
		require.ErrorIs(t, first.Unlock(t.Context()), locker.ErrLost)
		synctest.Wait()
		assert.EqualValues(t, 1, first.Token())
		assert.Equal(t, second.Token(), b.holder("x"))
		assert.False(t, fired(second.Lost()))
		require.NoError(t, second.Extend(t.Context()))
		require.NoError(t, second.Unlock(t.Context()))
	})
}

func TestHold_isIndependentOfTheMutexsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x")
		h, err := m.Acquire(t.Context())
		require.NoError(t, err)
		assert.Zero(t, m.FencingToken())
		assert.Nil(t, m.Lost())
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrNotHeld)
		require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrHeld)
		_, err = m.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrHeld)
		require.NoError(t, h.Unlock(t.Context()))
		require.NoError(t, m.TryLock(t.Context()))
	})
}

func TestHold_isRenewedAndExtended(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		h, err := b.client(t).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(3 * ttl)
		assert.Equal(t, h.Token(), b.holder("x"))
		require.NoError(t, h.Extend(t.Context()))
		assert.Equal(t, life, time.Until(h.Deadline()))
		require.NoError(t, h.Unlock(t.Context()))
		assert.Zero(t, b.holder("x"))
	})
}

func TestHold_costsNoGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		before := goroutines()
		holdMany(t, c, 100)
		synctest.Wait()
		assert.Less(t, goroutines(), before+50)
	})
}

func TestAbandon_leavesTheLockTakenUntilItExpires(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x")
		h, err := m.Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := h.Context(t.Context(), 0)
		defer cancel()
		time.Sleep(ttl)
		extensions := len(b.calls(extend))
		require.Positive(t, extensions)
		deadline := h.Deadline()
		assert.Zero(t, took(func() { require.NoError(t, h.Abandon()) }))

		require.ErrorIs(t, h.Err(), locker.ErrNotHeld)
		require.Equal(t, locker.ErrNotHeld, context.Cause(ctx))
		require.ErrorIs(t, h.Abandon(), locker.ErrNotHeld)
		require.ErrorIs(t, h.Unlock(t.Context()), locker.ErrNotHeld)
		require.ErrorIs(t, h.Extend(t.Context()), locker.ErrNotHeld)
		assert.Equal(t, h.Token(), b.holder("x"))
		require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrHeld)
		time.Sleep(time.Until(deadline))
		synctest.Wait()
		assert.False(t, fired(h.Lost()), "its holder ended it")
		require.NoError(t, m.Lock(t.Context()))
		assert.Len(t, b.calls(extend), extensions, "it is renewed no more")
		assert.Empty(t, b.calls(release))
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestAbandon_ofALostHold(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		h, err := b.client(t, locker.WithoutRenewal()).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(ttl)
		require.ErrorIs(t, h.Abandon(), locker.ErrLost)
		assert.ErrorContains(t, h.Abandon(), `abandon "x"`)
	})
}

func TestAbandon_ofAClosedClient(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.ErrorIs(t, h.Abandon(), locker.ErrLost)
		assert.Zero(t, b.holder("x"), "Close has released it")
	})
}

func TestAbandon_releasesALeaseThatGoesOnInItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		h, err := clientOf(t, boastful{&fakeDriver{b: b}}).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Abandon())
		time.Sleep(life)
		synctest.Wait()
		assert.Empty(t, b.calls(release))
		time.Sleep(drift)
		synctest.Wait()
		assert.Len(t, b.calls(release), 1)
	})
}

func TestAbandon_isNoLossForTheObserver(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		ends := make(chan locker.HoldEnd, 2)
		c := b.client(t, locker.WithObserver(locker.Observer{
			Ended: func(_ context.Context, _ locker.HoldID, e locker.HoldEnd) { ends <- e },
		}))
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, h.Abandon())
		time.Sleep(2 * ttl)
		assert.Equal(t, locker.HoldEnd{Cause: locker.CauseAbandoned, Held: time.Second, Left: life - time.Second}, <-ends)
		assert.Empty(t, ends, "once")
	})
}

func TestClose_withoutRelease(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t, locker.WithoutRelease())
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		abandoned, err := c.Mutex("y").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, abandoned.Abandon())
		unlocked, err := c.Mutex("z").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, unlocked.Unlock(t.Context()))
		assert.Zero(t, b.holder("z"), "the others are released as ever")
		require.NoError(t, c.Close())
		assert.True(t, fired(h.Lost()))
		require.ErrorIs(t, h.Unlock(t.Context()), locker.ErrLost)
		assert.Equal(t, h.Token(), b.holder("x"))
		assert.Equal(t, abandoned.Token(), b.holder("y"))
		assert.Len(t, b.calls(release), 1)
		time.Sleep(ttl)
		assert.Zero(t, b.holder("x"))
		assert.Zero(t, b.holder("y"))
	})
}
