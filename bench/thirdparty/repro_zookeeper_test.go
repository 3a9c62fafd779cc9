package thirdparty

import (
	"reflect"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

var anybody = zk.WorldACL(zk.PermAll)

// connAt has a session that lasts a minute.
func connAt(t *testing.T, addr string) *zk.Conn {
	t.Helper()
	return dialZooKeeper(t, addr, time.Minute)
}

// at is the path of the test's own lock.
func at(t *testing.T) string {
	t.Helper()
	return "/" + t.Name()
}

// queue are the nodes of the test's lock.
func queue(t *testing.T, conn *zk.Conn) []string {
	t.Helper()
	children, _, err := conn.Children(at(t))
	require.NoError(t, err)
	return children
}

// foreignChild has there be the lock's node, and a child in it that is not of Lock's making.
func foreignChild(t *testing.T, conn *zk.Conn) (remove func()) {
	t.Helper()
	l := zk.NewLock(conn, at(t), anybody)
	require.NoError(t, l.Lock())
	require.NoError(t, l.Unlock())
	path, err := conn.Create(at(t)+"/config", nil, 0, anybody)
	require.NoError(t, err)
	return func() { require.NoError(t, conn.Delete(path, -1)) }
}

func TestRepro_zkLock_noFencingToken(t *testing.T) {
	assert.Equal(t, []string{"Lock", "LockWithData", "Unlock"}, methods(reflect.TypeFor[*zk.Lock]()))
	var l interface { // and none of them says anything but how it went
		Lock() error
		LockWithData(data []byte) error
		Unlock() error
	} = zk.NewLock(connAt(t, testserver.SharedZooKeeper(t).Addr()), at(t), anybody)
	require.NoError(t, l.Lock())
}

func TestRepro_zkLock_cannotBeCancelled(t *testing.T) {
	server := testserver.SharedZooKeeper(t)
	holder, waiter := connAt(t, server.Addr()), connAt(t, server.Addr())
	require.NoError(t, zk.NewLock(holder, at(t), anybody).Lock())
	l := zk.NewLock(waiter, at(t), anybody)
	locked := start(l.Lock)
	await(t, "two are in the queue", func() bool { return len(queue(t, holder)) == 2 })
	require.ErrorIs(t, l.Unlock(), zk.ErrNotLocked) // which is no way to leave the queue
	pending(t, "Lock", locked, soon)
	waiter.Close() // the only one that there is
	require.Error(t, result(t, "Lock", locked))
}

func TestRepro_zkLock_foreignChildFailsEverybody(t *testing.T) {
	server := testserver.SharedZooKeeper(t)
	foreignChild(t, connAt(t, server.Addr()))
	for range 2 {
		assert.Error(t, zk.NewLock(connAt(t, server.Addr()), at(t), anybody).Lock())
	}
}

func TestRepro_zkLock_errorLeavesTheNode(t *testing.T) {
	server := testserver.SharedZooKeeper(t)
	failed, other := connAt(t, server.Addr()), connAt(t, server.Addr())
	remove := foreignChild(t, other)
	require.Error(t, zk.NewLock(failed, at(t), anybody).Lock())
	remove()
	require.Len(t, queue(t, other), 1, "nobody holds the lock")
	locked := start(zk.NewLock(other, at(t), anybody).Lock)
	pending(t, "Lock", locked, 4*soon)
	failed.Close()
	require.NoError(t, result(t, "Lock", locked))
}

func TestRepro_zkLock_vanishedNodeIsForEver(t *testing.T) {
	server := testserver.SharedZooKeeper(t)
	conn := connAt(t, server.Addr())
	l := zk.NewLock(conn, at(t), anybody)
	require.NoError(t, l.Lock())
	require.NoError(t, conn.Delete(at(t)+"/"+queue(t, conn)[0], -1))
	for range 2 {
		require.ErrorIs(t, l.Unlock(), zk.ErrNoNode)
		require.ErrorIs(t, l.Lock(), zk.ErrDeadlock)
	}
}

func TestRepro_zkLock_hasNoExtend(t *testing.T) {
	server := testserver.SharedZooKeeper(t)
	conn := connAt(t, server.Addr())
	assert.Equal(t, []string{"Lock", "LockWithData", "Unlock"}, methods(reflect.TypeFor[*zk.Lock]()))
	l := zk.NewLock(conn, at(t), anybody)
	require.NoError(t, l.Lock())
	server.EndSession(conn.SessionID())
	other := zk.NewLock(connAt(t, server.Addr()), at(t), anybody)
	require.NoError(t, other.Lock())
	assert.ErrorIs(t, l.Lock(), zk.ErrDeadlock, "to the Lock it is locked, while another holds")
}

func TestRepro_zkLock_outlastsItsTimeOut(t *testing.T) {
	const session = 3 * time.Second // a client tries to connect each second
	server := testserver.ZooKeeper(t)
	conn := dialZooKeeper(t, server.Addr(), session)
	require.NoError(t, zk.NewLock(conn, at(t), anybody).Lock())
	id := conn.SessionID()
	server.Kill()
	time.Sleep(session + soon)
	server.Restart()
	await(t, "the holder is connected", func() bool { return conn.State() == zk.StateHasSession })
	assert.Equal(t, id, conn.SessionID())
	locked := start(zk.NewLock(connAt(t, server.Addr()), at(t), anybody).Lock)
	pending(t, "another's Lock", locked, session)
	conn.Close()
	require.NoError(t, result(t, "Lock", locked))
}

func TestRepro_zkLock_unlockOutlastsTheSession(t *testing.T) {
	const session = 400 * time.Millisecond
	server := testserver.ZooKeeper(t)
	longest := time.Duration(0)
	for i := 0; i < 5 && longest < 2*session; i++ { // it needs a little luck: an attempt to connect must just have failed
		l := zk.NewLock(dialZooKeeper(t, server.Addr(), session), at(t), anybody)
		require.NoError(t, l.Lock())
		server.Kill()
		begin := time.Now()
		require.Error(t, l.Unlock())
		longest = max(longest, time.Since(begin))
		server.Restart()
	}
	assert.Greater(t, longest, 2*session)
}

func TestRepro_zkLock_connectingAgainKeepsTheNode(t *testing.T) {
	const session = 3 * time.Second
	server := testserver.SharedZooKeeper(t)
	proxy := testserver.NewProxy(t, server.Addr())
	other, cut := connAt(t, server.Addr()), dialZooKeeper(t, proxy.Addr(), session)
	l := zk.NewLock(cut, at(t), anybody)
	require.NoError(t, l.Lock())
	require.NoError(t, l.Unlock())
	proxy.DropReplies(true)
	start(l.Lock)
	await(t, "the node is there", func() bool { return len(queue(t, other)) == 1 })
	time.Sleep(session + session/2) // nothing has come back all that time
	assert.Len(t, queue(t, other), 1)
}
