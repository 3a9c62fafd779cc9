package etcd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	harness.Inspect(t, harness.Inspection{
		URL: s.URL() + "?renew=false", TTL: 2 * time.Second,
		Left: true, TokenWhenWaited: true, Queue: true, QueueMetadata: true, IDs: true,
		TellsHolder: true, TellsMetadata: true,
		Contents: func(t testing.TB) string {
			t.Helper()
			cli := connect(t, s.Addr())
			return fmt.Sprint(revisionNow(t, cli), keys(t, cli, ""), len(leases(t, cli)))
		},
		Stop: func() func() { s.Stop(); return s.Continue },
		Kill: s.Kill,
	})
}

func TestInspect_takesTheRightToReadAlone(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t, testserver.EtcdAuth("alice", "s3cret"))
	root := login(t, "root", s.Addr())
	ctx := t.Context()
	const x = "locker:x/"
	_, err := root.RoleAdd(ctx, "seer")
	require.NoError(t, err)
	_, err = root.RoleGrantPermission(ctx, "seer", x, clientv3.GetPrefixRangeEnd(x), clientv3.PermissionType(clientv3.PermRead))
	require.NoError(t, err)
	_, err = root.UserAdd(ctx, "eve", "s3cret")
	require.NoError(t, err)
	_, err = root.UserGrantRole(ctx, "eve", "seer")
	require.NoError(t, err)

	holder := openURL(t, "etcd://alice:s3cret@"+s.Addr(), locker.WithPrefix("locker"), locker.WithMetadata("host 7"))
	m := holder.Mutex("x")
	require.NoError(t, m.Lock(ctx))
	require.NoError(t, holder.Mutex("y").Lock(ctx), "on the same session")
	eve := openURL(t, "etcd://eve:s3cret@"+s.Addr(), locker.WithPrefix("locker"))
	state, err := eve.Inspect(ctx, "x")
	require.NoError(t, err)
	assert.Equal(t, "host 7", state.Holder.Metadata)
	assert.Equal(t, m.FencingToken(), state.Token)
	assert.Positive(t, state.Left)
	_, err = eve.Inspect(ctx, "y")
	require.ErrorContains(t, err, "permission denied")
	assert.NotContains(t, err.Error(), "s3cret")
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	harness.Abandon(t, "etcd://"+testserver.SharedEtcd(t).Addr()+"?prefix="+space(t), 2*time.Second)
}
