package zookeeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/zookeeper"
)

func TestSession_endsUnderTheHolder(t *testing.T) {
	t.Parallel()
	onEachConnection(t, harness.Sessions.EndsUnderTheHolder)
}

func TestNode_removedUnderTheHolder(t *testing.T) {
	t.Parallel()
	sessions(t).RemovedUnderTheHolder(t)
}

func TestSession_endsUnderAWaiter_takesItToTheEndOfTheQueue(t *testing.T) {
	t.Parallel()
	onEachConnection(t, harness.Sessions.EndsUnderAWaiter)
}

func TestSession_endsUnderAWaiterWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	onEachConnection(t, harness.Sessions.EndsUnderAWaiterWhoseTurnItIs)
}

func TestExtendAll(t *testing.T) {
	t.Parallel()
	b := sessions(t)
	conn, events := connect(t, 10*time.Second, b.Addr)
	d, err := zookeeper.NewDriver(conn, events, zookeeper.Tick(serverTick))
	require.NoError(t, err)
	defer func() { _ = d.Close() }()
	b.ExtendsAll(t, d, space(t))
}

func TestMutexes_ofOneConnectionContend(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	look := direct(t, s.Addr())
	c := openURL(t, s.URL(), "ttl=10s")
	a, b, long := c.Mutex("x"), c.Mutex("x"), c.Mutex("x", locker.WithTTL(20*time.Second))
	require.NoError(t, a.Lock(t.Context()))
	require.ErrorIs(t, b.TryLock(t.Context()), locker.ErrHeld)
	require.ErrorIs(t, long.TryLock(t.Context()), locker.ErrHeld)
	require.Len(t, queue(t, look, "x"), 1, "TryLock has left nothing behind")
	require.NoError(t, a.Unlock(t.Context()))
	require.NoError(t, long.TryLock(t.Context()))
	assert.Greater(t, time.Until(long.Deadline()), 10*time.Second, "it has the lifetime of its own session")
	require.ErrorIs(t, a.TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, long.Unlock(t.Context()))

	conn, events := connect(t, 10*time.Second, s.Addr())
	one, two := clientOf(t, conn, events), clientOf(t, conn, nil)
	m, n := one.Mutex("x"), two.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	require.ErrorIs(t, n.TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, n.TryLock(t.Context()))
	require.NoError(t, n.Unlock(t.Context()))
}

func TestForeignNodes_doNoHarm(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	look := direct(t, s.Addr())
	c := openURL(t, s.URL(), "ttl=10s")
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
		m, next := c.Mutex(name), c.Mutex(name)
		require.NoError(t, take(m, withTimeout(t, patient)))
		put("later", 0)
		require.ErrorIs(t, next.TryLock(t.Context()), locker.ErrHeld)
		waiting := async(func() error { return next.Lock(t.Context()) })
		eventually(t, "it waits", func() bool { return len(queue(t, look, name)) == 7 })
		put("at last", 0)
		require.NoError(t, m.Extend(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, await(t, waiting))
		require.NoError(t, next.Unlock(t.Context()))
		assert.Len(t, queue(t, look, name), 6, "theirs, untouched")
	}
}

func TestMetadata_isTheData(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	look := direct(t, s.Addr())
	m := openURL(t, s.URL(), "ttl=10s", locker.WithMetadata("host 7")).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	data, _, err := look.Get(queue(t, look, "x")[0])
	require.NoError(t, err)
	assert.Equal(t, "host 7", string(data))
	_, stat, err := look.Get(parent(t, "x"))
	require.NoError(t, err)
	assert.EqualValues(t, stat.Pzxid, m.FencingToken())
	require.NoError(t, m.Unlock(t.Context()))
}

// The servers remove empty containers, and the next number begins anew. Tokens do not.
func TestContainers_areReapedAndTokensRise(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.ZooKeeperReaping())
	look := direct(t, s.Addr())
	m := openURL(t, s.URL(), "ttl=10s").Mutex("x")
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
