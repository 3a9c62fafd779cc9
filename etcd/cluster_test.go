package etcd_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// One cluster goes through both.
func TestCluster_theLeaderIsKilled(t *testing.T) {
	t.Parallel()
	g := three(t)
	t.Run("it stops", func(t *testing.T) { theLeaderStops(t, g) })
	majority(t, g).LosesItsLeader(t)
}

func theLeaderStops(t *testing.T, g *testserver.EtcdGroup) {
	t.Helper()
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
	deadline := held.Deadline()
	eventually(t, "the hold is renewed", func() bool { return held.Deadline().After(deadline) })
	assert.Equal(t, token, held.FencingToken())
	require.NoError(t, held.Unlock(t.Context()))
	s.Continue()
	eventually(t, "nothing is left", func() bool {
		return len(queue(t, direct, "x"))+len(queue(t, direct, "held")) == 0
	})
}
