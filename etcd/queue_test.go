package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestSession_revokedUnderTheHolder(t *testing.T) {
	t.Parallel()
	sessions(t).EndsUnderTheHolder(t)
}

func TestKey_removedUnderTheHolder(t *testing.T) {
	t.Parallel()
	sessions(t).RemovedUnderTheHolder(t)
}

func TestSession_revokedUnderAWaiter_takesItToTheEndOfTheQueue(t *testing.T) {
	t.Parallel()
	sessions(t).EndsUnderAWaiter(t)
}

func TestSession_revokedUnderAWaiterWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	sessions(t).EndsUnderAWaiterWhoseTurnItIs(t)
}

func TestExtendAll(t *testing.T) {
	t.Parallel()
	b := sessions(t)
	b.ExtendsAll(t, driverOf(t, connect(t, b.Addr)), 20*time.Second, space(t))
}

// Keys of others are no contenders, whatever they are called.
func TestForeignKeys_doNoHarm(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	direct := connect(t, s.Addr())
	c := newClient(t, s.Addr(), locker.WithTTL(10*time.Second))
	for name, take := range map[string]func(*locker.Mutex, context.Context) error{
		"Lock": (*locker.Mutex).Lock, "TryLock": (*locker.Mutex).TryLock,
	} {
		put := func(key string) {
			_, err := direct.Put(t.Context(), folder(t, name)+key, "not ours")
			require.NoError(t, err)
		}
		put("")
		put("note")
		put("0123456789abcdef0123456789abcdef") // without a lease
		state, err := c.Inspect(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, locker.State{}, state)
		m, next := c.Mutex(name), c.Mutex(name)
		require.NoError(t, take(m, withTimeout(t, patient)))
		put("later")
		require.ErrorIs(t, next.TryLock(t.Context()), locker.ErrHeld)
		eventually(t, "of the TryLock nothing is left", func() bool { return len(queue(t, direct, name)) == 5 })
		waiting := async(func() error { return next.Lock(t.Context()) })
		eventually(t, "it waits", func() bool { return len(queue(t, direct, name)) == 6 })
		put("at last")
		state, err = c.Inspect(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, m.FencingToken(), state.Token)
		assert.Len(t, state.Waiters, 1)
		require.NoError(t, m.Extend(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, await(t, waiting))
		require.NoError(t, next.Unlock(t.Context()))

		a, b := c.RWMutex(name), c.RWMutex(name)
		require.NoError(t, a.TryRLock(t.Context()))
		require.NoError(t, b.TryRLock(t.Context()))
		assert.Equal(t, a.FencingToken(), b.FencingToken())
		waiting = async(func() error { return next.Lock(t.Context()) })
		eventually(t, "it waits", func() bool { return len(queue(t, direct, name)) == 8 })
		require.ErrorIs(t, c.RWMutex(name).TryRLock(t.Context()), locker.ErrHeld)
		require.NoError(t, a.Unlock(t.Context()))
		require.NoError(t, b.Unlock(t.Context()))
		require.NoError(t, await(t, waiting))
		require.NoError(t, next.Unlock(t.Context()))
		assert.Len(t, queue(t, direct, name), 5, "theirs, untouched")
	}
}
