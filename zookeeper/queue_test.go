package zookeeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/zookeeper"
)

func TestSession_endsUnderTheHolder(t *testing.T) {
	t.Parallel()
	sessions(t).EndsUnderTheHolder(t)
}

func TestNode_removedUnderTheHolder(t *testing.T) {
	t.Parallel()
	sessions(t).RemovedUnderTheHolder(t)
}

func TestSession_endsUnderAWaiter_takesItToTheEndOfTheQueue(t *testing.T) {
	t.Parallel()
	sessions(t).EndsUnderAWaiter(t)
}

func TestSession_endsUnderAWaiterWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	sessions(t).EndsUnderAWaiterWhoseTurnItIs(t)
}

func TestLostReply_ofAnUnlock_isASuccess(t *testing.T) {
	t.Parallel()
	sessions(t).UnlockUnanswered(t)
}

func TestExtendAll(t *testing.T) {
	t.Parallel()
	b := sessions(t)
	const ttl = 20 * time.Second
	d, err := zookeeper.NewDriver([]string{b.Addr}, zookeeper.Tick(serverTick))
	require.NoError(t, err)
	defer func() { _ = d.Close() }()
	b.ExtendsAll(t, d.(claims.Driver), ttl, space(t))
}

func TestForeignNodes_doNoHarm(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	look := direct(t, s.Addr())
	c := openURL(t, s.URL(), "ttl=30s")
	for name, take := range map[string]func(*locker.Mutex, context.Context) error{
		"Lock": (*locker.Mutex).Lock, "TryLock": (*locker.Mutex).TryLock,
	} {
		first := c.Mutex(name) // the parent is there
		require.NoError(t, first.Lock(t.Context()))
		put := func(child string, flags int32) {
			_, err := look.Create(parent(t, name)+"/"+child, nil, flags, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		put("note", 0)
		put("0000000000", 0)
		put("lock-", zk.FlagEphemeralSequential)
		put("read-", zk.FlagSequence)
		require.NoError(t, first.Unlock(t.Context()))
		state, err := c.Inspect(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, locker.State{}, state)
		m, next := c.Mutex(name), c.Mutex(name)
		require.NoError(t, take(m, withTimeout(t, patient)))
		put("later", 0)
		require.ErrorIs(t, next.TryLock(t.Context()), locker.ErrHeld)
		waiting := async(func() error { return next.Lock(t.Context()) })
		eventually(t, "it waits", func() bool { return len(queue(t, look, name)) == 7 })
		put("at last", 0)
		state, err = c.Inspect(t.Context(), name)
		require.NoError(t, err)
		assert.Contains(t, queue(t, look, name), parent(t, name)+"/"+state.Holder.ID)
		assert.Len(t, state.Waiters, 1)
		require.NoError(t, m.Extend(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, await(t, waiting))
		require.NoError(t, next.Unlock(t.Context()))
		assert.Len(t, queue(t, look, name), 6, "theirs, untouched")
	}
}

// The servers remove empty containers, and the next number begins anew. Tokens do not.
func TestContainers_areReapedAndTokensRise(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.ZooKeeperReaping())
	look := direct(t, s.Addr())
	m := openURL(t, s.URL(), "ttl=30s").Mutex("x")
	last := uint64(0)
	for range 3 {
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, "0000000000", number(queue(t, look, "x")[0]))
		assert.Greater(t, m.FencingToken(), last)
		last = m.FencingToken()
		require.NoError(t, m.Unlock(t.Context()))
		eventually(t, "nothing is left at all", func() bool {
			found, _, err := look.Exists("/" + space(t))
			require.NoError(t, err)
			return !found
		})
	}
}
