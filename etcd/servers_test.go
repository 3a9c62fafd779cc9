package etcd_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

// A client reaches none but the leader, whose followers are stopped. It is answered, and can take
// nothing, and what it holds is lost. The followers, without that leader, give the lock to another.
func TestPartition_aMinorityHoldsAndTakesNothing(t *testing.T) {
	t.Parallel()
	g := testserver.EtcdCluster(t, 3)
	alone := g.Leader()
	rest := slices.DeleteFunc(slices.Clone(g.Servers()), func(s *testserver.EtcdServer) bool { return s == alone })
	// A TTL that outlasts two elections.
	majority := clientOf(t, connect(t, rest[0].Addr(), rest[1].Addr()), locker.WithTTL(20*time.Second))
	minority := openURL(t, alone.URL()+"?ttl=6s")
	x, next := minority.Mutex("x"), majority.Mutex("x")
	eventually(t, "it holds", func() bool { return x.Lock(t.Context()) == nil })
	token := x.FencingToken()
	for _, s := range rest {
		s.Stop()
		t.Cleanup(s.Continue)
	}
	err := minority.Mutex("z").TryLock(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrHeld)
	<-x.Hold().Lost()
	assert.Zero(t, x.FencingToken())

	alone.Stop()
	t.Cleanup(alone.Continue)
	for _, s := range rest {
		s.Continue()
	}
	eventually(t, "another holds", func() bool { return next.Lock(t.Context()) == nil })
	assert.Greater(t, next.FencingToken(), token)
	require.ErrorIs(t, x.Unlock(t.Context()), locker.ErrLost)
	require.NoError(t, next.Unlock(t.Context()))
}

// A leader that is stopped, and not killed, answers nothing and closes no connection.
func TestCluster_theLeaderStops(t *testing.T) {
	t.Parallel()
	g := testserver.EtcdCluster(t, 3)
	direct := connect(t, g.Addrs()...)
	c := openURL(t, g.URL()+"?ttl=12s") // a call may take half of it
	held, m := c.Mutex("held"), c.Mutex("x")
	require.NoError(t, held.Lock(t.Context()))
	token := held.FencingToken()
	s := g.Leader()
	s.Stop()
	t.Cleanup(s.Continue)
	g.Leader()
	for range 6 { // by way of each member, the stopped one too
		require.NoError(t, m.TryLock(t.Context()))
		require.NoError(t, m.Extend(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	}
	deadline := held.Hold().Deadline()
	eventually(t, "the hold is renewed", func() bool { return held.Hold().Deadline().After(deadline) })
	assert.Equal(t, token, held.FencingToken())
	require.NoError(t, held.Unlock(t.Context()))
	s.Continue()
	eventually(t, "nothing is left", func() bool {
		return len(queue(t, direct, "x"))+len(queue(t, direct, "held")) == 0
	})
}

func TestSilence_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	c := openURL(t, s.URL()+"?ttl="+harness.SilenceTTL.String())
	harness.OutlivesSilence(t, c.Mutex("x"), s.Stop, s.Continue)
}

func TestSlowness_endsNoHold(t *testing.T) {
	t.Parallel()
	network := testserver.NewProxy(t, testserver.SharedEtcd(t).Addr())
	c := openURL(t, "etcd://"+network.Addr()+"?ttl="+harness.SilenceTTL.String())
	harness.OutlivesSlowness(t, c.Mutex("x"), network)
}

func TestInspect(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	harness.Inspect(t, harness.Inspection{
		URL: s.URL(), TTL: 2 * time.Second,
		Left: true, TokenWhenWaited: true, Queue: true, IDs: true,
		TellsHolder: true, TellsMetadata: true,
		Contents: func(t testing.TB) string {
			t.Helper()
			cli := connect(t, s.Addr())
			resp, err := cli.Get(t.Context(), "no such key")
			require.NoError(t, err)
			return fmt.Sprint(resp.Header.Revision, keys(t, cli, ""), len(leases(t, cli)))
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
	addUser(t, root, "eve", "locker:x/", clientv3.PermissionType(clientv3.PermRead))
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
