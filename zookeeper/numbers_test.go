package zookeeper_test

import (
	"math"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// note is a child of the lock x that is not ours, and keeps the servers from removing the node.
func note(t testing.TB) string { return parent(t, "x") + "/note" }

// numbered starts a server on which n children of the lock x were made, and a note.
func numbered(t testing.TB, n int32) (*testserver.ZooKeeperServer, *zk.Conn) {
	t.Helper()
	s := testserver.ZooKeeper(t, testserver.ZooKeeperReaping())
	create := func(node string, container bool) {
		conn, events, err := zk.Connect([]string{s.Addr()}, 30*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false))
		require.NoError(t, err)
		defer func() {
			conn.Close()
			for range events {
			}
		}()
		if container {
			_, err = conn.CreateContainer(node, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
		} else {
			_, err = conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
		}
		require.NoError(t, err)
	}
	create("/"+space(t), true)
	create(parent(t, "x"), true)
	create(note(t), false)
	s.SetCreated(parent(t, "x"), n)
	return s, direct(t, s.Addr())
}

// The servers count children up to 2147483647, and then give each that number. A contender with a number
// near that neither holds nor waits, and who got one below keeps its place, and the lock in its turn.
// Then nobody keeps the container from being removed, and numbers begin anew.
func TestNumbers_thoseWhoStandInTheQueueHoldInTurn(t *testing.T) {
	t.Parallel()
	s, look := numbered(t, math.MaxInt32-1<<20-1)
	c := openURL(t, s.URL(), "ttl=30s")
	first, second, third := c.Mutex("x"), c.Mutex("x"), c.Mutex("x")
	require.NoError(t, first.Lock(t.Context()))
	waiting := async(func() error { return second.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue(t, look, "x")) == 3 })
	err := third.Lock(withTimeout(t, patient))
	require.ErrorContains(t, err, parent(t, "x")+": the servers number children up to 2147483647")
	require.ErrorContains(t, err, "delete it")
	require.NotErrorIs(t, err, locker.ErrHeld)
	made := func() int32 {
		_, stat, err := look.Exists(parent(t, "x"))
		require.NoError(t, err)
		return stat.Cversion
	}
	before := made()
	require.ErrorContains(t, third.Lock(withTimeout(t, patient)), "number children up to")
	assert.Equal(t, before, made(), "who is refused again makes no node: numbers are left to those that wait")
	require.ErrorIs(t, third.TryLock(t.Context()), locker.ErrHeld, "so it is")
	require.Len(t, queue(t, look, "x"), 3, "they have left nothing behind")
	require.NoError(t, first.Extend(t.Context()))
	token := first.FencingToken()
	require.NoError(t, first.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	assert.Greater(t, second.FencingToken(), token)
	token = second.FencingToken()
	require.NoError(t, second.Unlock(t.Context()))
	require.NoError(t, look.Delete(note(t), -1))
	eventually(t, "numbers begin anew", func() bool { return third.Lock(t.Context()) == nil })
	assert.Greater(t, third.FencingToken(), token)
	assert.LessOrEqual(t, number(queue(t, look, "x")[0]), "0000000001")
	require.NoError(t, third.Unlock(t.Context()))
}
