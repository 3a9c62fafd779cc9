package locker_test

import (
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
