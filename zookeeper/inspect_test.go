package zookeeper_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
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

// More than one request reads, and in the order of the queue.
func TestInspect_ofALongQueue(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	look := direct(t, s.Addr())
	c := openURL(t, s.URL(), "ttl=30s")
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

func TestAbandon(t *testing.T) {
	t.Parallel()
	harness.Abandon(t, "zookeeper://"+testserver.SharedZooKeeper(t).Addr()+"/"+space(t)+"?tick=100ms", 2*time.Second)
}
