package etcd_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// One cluster goes through all of it.
func TestCluster_theLeaderIsKilled(t *testing.T) {
	t.Parallel()
	g := three(t)
	t.Run("a member stops", func(t *testing.T) { oneMemberStops(t, g) })
	majority(t, g).LosesItsLeader(t)
	t.Run("and the majority, which comes back", func(t *testing.T) { majority(t, g).IsLost(t) })
}

func oneMemberStops(t *testing.T, g *testserver.EtcdGroup) {
	t.Helper()
	direct := connect(t, g.Addrs()...)
	for _, which := range []string{"the leader", "a follower"} {
		t.Run(which, func(t *testing.T) {
			if which == "a follower" {
				testwait.OnlyNightly(t, "less happens than when the leader stops")
			}
			c := openURL(t, g.URL()+"?ttl=6s")
			held, m := c.Mutex("held"), c.Mutex("x")
			require.NoError(t, held.Lock(t.Context()))
			token := held.FencingToken()
			s := g.Leader()
			if which == "a follower" {
				for _, other := range g.Servers() {
					if other != s {
						s = other
						break
					}
				}
			}
			s.Stop()
			g.Leader()
			for range 6 { // by way of each member, the stopped one too
				require.NoError(t, m.Lock(withTimeout(t, patient)))
				require.NoError(t, m.Extend(t.Context()))
				require.NoError(t, m.Unlock(t.Context()))
			}
			deadline := held.Deadline()
			eventually(t, "the hold is renewed", func() bool { return held.Deadline().After(deadline) })
			assert.Equal(t, token, held.FencingToken())
			require.NoError(t, held.Unlock(t.Context()))
			s.Continue()
			eventually(t, "nothing is left", func() bool { return len(queue(t, direct, "x"))+len(queue(t, direct, "held")) == 0 })
		})
	}
}
