package zookeeper_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	network, look, root := testserver.NewProxy(t, s.Addr()), direct(t, s.Addr()), "/"+space(t)
	_, err := look.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	harness.Inspect(t, harness.Inspection{
		URL: "zookeeper://" + network.Addr() + root + "/path?tick=100ms", TTL: 2 * time.Second,
		Queue: true, QueueMetadata: true, IDs: true, TellsHolder: true,
		Contents: func(t testing.TB) string { return contents(t, look, root) },
		Stop:     func() func() { return silence(network) },
		Kill:     network.Sever,
	})
}

func TestInspect_ofThreeServers(t *testing.T) {
	testwait.OnlyNightly(t, "TestInspect shows the same on one server")
	t.Parallel()
	g := three(t)
	look := direct(t, g.Addrs()...)
	each := func(do func(*testserver.ZooKeeperServer)) {
		for _, s := range g.Servers() {
			do(s)
		}
	}
	harness.Inspect(t, harness.Inspection{
		URL: "zookeeper://" + strings.Join(g.Addrs(), ",") + "/some/path?tick=100ms", TTL: 2 * time.Second,
		Queue: true, QueueMetadata: true, IDs: true, TellsHolder: true,
		Contents: func(t testing.TB) string { return contents(t, look, "/") },
		Stop: func() func() {
			each((*testserver.ZooKeeperServer).Stop)
			return func() { each((*testserver.ZooKeeperServer).Continue) }
		},
		Kill: func() { each((*testserver.ZooKeeperServer).Kill) },
	})
}

// contents are the nodes at and below path, with what changes when anything does.
func contents(t testing.TB, conn *zk.Conn, path string) string {
	t.Helper()
	_, err := conn.Sync(path)
	require.NoError(t, err)
	children, stat, err := conn.Children(path)
	require.NoError(t, err)
	all := fmt.Sprintln(path, stat.Mzxid, stat.Pzxid)
	slices.Sort(children)
	for _, child := range children {
		all += contents(t, conn, strings.TrimSuffix(path, "/")+"/"+child)
	}
	return all
}

// The application's connection will do, and nodes of others are no contenders.
func TestInspect_onTheApplicationsConnection(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	conn, events := connect(t, 10*time.Second, s.Addr())
	c := clientOf(t, conn, events, locker.WithMetadata("host 7"))
	state, err := c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, locker.State{}, state)
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, m.Unlock(t.Context()))
	_, err = conn.Create(parent(t, "x")+"/note", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	state, err = c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, locker.State{}, state)
	require.NoError(t, m.Lock(t.Context()))
	state, err = c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, m.FencingToken(), state.Token)
	assert.Equal(t, "host 7", state.Holder.Metadata)
	assert.Contains(t, queue(t, conn, "x"), parent(t, "x")+"/"+state.Holder.ID)
	assert.Empty(t, state.Waiters)
}

// More than one request reads, and in the order of the queue.
func TestInspect_ofALongQueue(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	look := direct(t, s.Addr())
	c := openURL(t, s.URL(), "ttl=10s")
	const n = 230
	require.NoError(t, c.Mutex("x").Lock(t.Context()))
	for i := range n {
		_, err := look.Create(fmt.Sprintf("%s/_c_%032x-lock-", parent(t, "x"), i), []byte(fmt.Sprint(i)), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	state, err := c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	require.Len(t, state.Waiters, n)
	for i, w := range state.Waiters {
		require.Equal(t, fmt.Sprint(i), w.Metadata)
	}
	assert.Zero(t, state.Token, "it may be any of the transactions since the holder came")
}

func TestInspect_withoutTheRightToRead(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	holder := openURL(t, "zookeeper://alice:s3cr3t@"+s.Addr(), "ttl=10s")
	require.NoError(t, holder.Mutex("x").Lock(t.Context()))
	_, err := openURL(t, s.URL(), "").Inspect(t.Context(), "x")
	require.ErrorIs(t, err, zk.ErrNoAuth)
	assert.NotContains(t, err.Error(), "s3cr3t")
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	harness.Abandon(t, "zookeeper://"+testserver.SharedZooKeeper(t).Addr()+"/"+space(t)+"?tick=100ms", 2*time.Second)
}

// The limit: the session is the application's, and the driver cannot end what is left there.
func TestAbandon_onAConnectionOfTheApplicationLastsAsLongAsThat(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	s := testserver.SharedZooKeeper(t)
	conn, events, err := zk.Connect([]string{s.Addr()}, ttl, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	require.NoError(t, err)
	defer conn.Close()
	eventually(t, "there is a session", func() bool { return conn.State() == zk.StateHasSession })
	c := clientOf(t, conn, events, locker.WithTTL(ttl))
	h, err := c.Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Abandon())
	require.NoError(t, c.Close())
	other, otherEvents := connect(t, ttl, s.Addr())
	m := clientOf(t, other, otherEvents, locker.WithTTL(ttl)).Mutex("x")
	require.ErrorIs(t, m.Lock(withTimeout(t, 2*ttl)), context.DeadlineExceeded)
	conn.Close()
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, m.Unlock(t.Context()))
}
