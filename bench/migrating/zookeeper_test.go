package migrating

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/zookeeper"
)

func zkWay(conn *zk.Conn) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		l := zk.NewLock(conn, "/locks/orders-42", zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return err
		}
		defer l.Unlock() //nolint:errcheck // as it is often written
		return work(ctx)
	}
}

const timeout = 2 * time.Second

func connect(t *testing.T) (conn *zk.Conn, servers []string) {
	t.Helper()
	servers = []string{testserver.ZooKeeper(t).Addr()}
	conn, _, err := zk.Connect(servers, timeout)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn, servers
}

func TestZooKeeper_changeOver(t *testing.T) {
	conn, servers := connect(t)

	client, err := zookeeper.New(servers, locker.WithTTL(timeout))
	changeOver(t, zkWay(conn), made(t)(client, err))
}

func TestZooKeeper_whatALockSays(t *testing.T) {
	conn, _ := connect(t)
	l := zk.NewLock(conn, "/locks/orders-42", zk.WorldACL(zk.PermAll))
	require.ErrorIs(t, l.Unlock(), zk.ErrNotLocked)
	require.NoError(t, l.LockWithData([]byte("web-3")))
	require.ErrorIs(t, l.Lock(), zk.ErrDeadlock)
	children, _, err := conn.Children("/locks/orders-42")
	require.NoError(t, err)
	require.Len(t, children, 1)
	require.NoError(t, conn.Delete("/locks/orders-42/"+children[0], -1))
	require.ErrorIs(t, l.Unlock(), zk.ErrNoNode)
}

func TestZooKeeper_theTTLIsThatOfTheSession(t *testing.T) {
	_, servers := connect(t)
	acl := zk.WorldACL(zk.PermAll)
	d, err := zookeeper.NewDriver(servers, zookeeper.ACL(acl))
	require.NoError(t, err)
	client := made(t)(locker.New(d, locker.WithTTL(timeout), locker.WithMetadata("web-3")))
	m := client.Mutex("orders/42")
	require.NoError(t, m.Lock(t.Context()))
	assert.LessOrEqual(t, time.Until(m.Deadline()), timeout)
	require.NoError(t, m.Unlock(t.Context()))
}
