package etcd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	inspect(t, testserver.EtcdCluster(t, 1))
}

func TestInspect_ofThreeServers(t *testing.T) {
	testwait.OnlyNightly(t, "TestInspect shows the same on one server")
	t.Parallel()
	inspect(t, three(t))
}

func inspect(t *testing.T, g *testserver.EtcdGroup) {
	t.Helper()
	each := func(do func(*testserver.EtcdServer)) {
		for _, s := range g.Servers() {
			do(s)
		}
	}
	harness.Inspect(t, harness.Inspection{
		URL: "etcd://" + strings.Join(g.Addrs(), ",") + "?renew=false", TTL: 2 * time.Second,
		Left: true, TokenWhenWaited: true, Queue: true, QueueMetadata: true, IDs: true,
		TellsHolder: true, TellsMetadata: true,
		Contents: func(t testing.TB) string {
			t.Helper()
			cli := connect(t, g.Addrs()...)
			return fmt.Sprint(revisionNow(t, cli), keys(t, cli, ""), len(leases(t, cli)))
		},
		Stop: func() func() {
			each((*testserver.EtcdServer).Stop)
			return func() { each((*testserver.EtcdServer).Continue) }
		},
		Kill: func() { each((*testserver.EtcdServer).Kill) },
	})
}

// Keys of others are no contenders, and neither is who was given up.
func TestInspect_countsContendersAlone(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	direct := connect(t, s.Addr())
	c := newClient(t, s.Addr())
	const owner = "0123456789abcdef0123456789abcdef"
	for _, key := range []string{folder(t, "x"), folder(t, "x") + "note", folder(t, "x") + owner, dead(t, "x") + owner} {
		_, err := direct.Put(t.Context(), key, "not ours")
		require.NoError(t, err)
	}
	state, err := c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, locker.State{}, state)
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	state, err = c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, m.FencingToken(), state.Token)
	assert.Equal(t, folder(t, "x")+state.Holder.ID, queue(t, direct, "x")[3])
	assert.Empty(t, state.Waiters)
}

func TestInspect_takesTheRightToReadAlone(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t, testserver.EtcdAuth("alice", "s3cr3t"))
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: "root", Password: "s3cr3t"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	ctx := t.Context()
	const x = "locker:x/"
	_, err = root.RoleAdd(ctx, "seer")
	require.NoError(t, err)
	_, err = root.RoleGrantPermission(ctx, "seer", x, clientv3.GetPrefixRangeEnd(x), clientv3.PermissionType(clientv3.PermRead))
	require.NoError(t, err)
	_, err = root.UserAdd(ctx, "eve", "s3cr3t-too")
	require.NoError(t, err)
	_, err = root.UserGrantRole(ctx, "eve", "seer")
	require.NoError(t, err)

	holder := openURL(t, "etcd://alice:s3cr3t@"+s.Addr(), locker.WithPrefix("locker"), locker.WithMetadata("host 7"))
	m := holder.Mutex("x")
	require.NoError(t, m.Lock(ctx))
	require.NoError(t, holder.Mutex("y").Lock(ctx), "on the same session")
	eve := openURL(t, "etcd://eve:s3cr3t-too@"+s.Addr(), locker.WithPrefix("locker"))
	state, err := eve.Inspect(ctx, "x")
	require.NoError(t, err)
	assert.Equal(t, "host 7", state.Holder.Metadata)
	assert.Equal(t, m.FencingToken(), state.Token)
	assert.Positive(t, state.Left)
	_, err = eve.Inspect(ctx, "y")
	require.ErrorContains(t, err, "permission denied")
	assert.NotContains(t, err.Error(), "s3cr3t")
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	harness.Abandon(t, "etcd://"+testserver.SharedEtcd(t).Addr()+"?prefix="+space(t), 2*time.Second)
}
