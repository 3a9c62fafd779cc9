package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

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
