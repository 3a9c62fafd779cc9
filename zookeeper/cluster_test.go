package zookeeper_test

import (
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

// One ensemble goes through all of it.
func TestCluster_theLeaderIsKilled(t *testing.T) {
	t.Parallel()
	g := three(t)
	t.Run("its session moves", func(t *testing.T) { sessionMoves(t, g) })
	majority(t, g).LosesItsLeader(t)
	t.Run("and the majority, which comes back", func(t *testing.T) { majority(t, g).IsLost(t) })
}

// The holder is connected to a follower that the others have lost, and which goes on to answer it for three seconds. The
// leader gives the lock to another after one. The holder has to know, by then.
func TestCluster_theHoldersServerIsCutOff(t *testing.T) {
	t.Parallel()
	g := three(t, testserver.ZooKeeperPartitionable(), testserver.ZooKeeperConfig("syncLimit=30"))
	follower := g.Followers()[0]
	c := openURL(t, follower.URL(), "ttl=1s")
	other := openURL(t, g.Leader().URL(), "ttl=3s")
	m, next := c.Mutex("x"), other.Mutex("x")
	look := direct(t, follower.Addr())
	times := 1
	if testwait.Thorough() {
		times = 3
	}
	for range times {
		eventually(t, "it holds, and a quorum knows", func() bool {
			if m.Lock(withTimeout(t, patient)) != nil {
				return false
			}
			err := m.Extend(t.Context())
			if err != nil {
				_ = m.Unlock(t.Context())
			}
			return err == nil
		})
		token := m.FencingToken()
		waiting := async(func() error { return next.Lock(t.Context()) })
		eventually(t, "it waits", func() bool { return len(queue(t, look, "x")) == 2 })
		g.Isolate(follower)
		cut := time.Now()
		lost := make(chan time.Time, 1)
		go func() {
			<-m.Lost()
			lost <- time.Now()
		}()
		reads := 0
		for stop := time.Now().Add(900 * time.Millisecond); time.Now().Before(stop); time.Sleep(20 * time.Millisecond) {
			if _, _, err := look.Exists("/"); err == nil {
				reads++
			}
		}
		assert.Positive(t, reads, "the follower answers")
		require.NoError(t, await(t, waiting))
		taken := time.Now()
		gone := <-lost
		assert.False(t, taken.Before(gone), "taken %v before the holder knew", gone.Sub(taken))
		t.Logf("lost %v, taken %v after the cut", gone.Sub(cut), taken.Sub(cut))
		assert.Greater(t, next.FencingToken(), token)
		require.NoError(t, next.Unlock(t.Context()))
		g.Heal()
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		g.Followers()
		eventually(t, "its server is back", func() bool {
			err := m.Lock(withTimeout(t, patient))
			return err == nil && m.Unlock(t.Context()) == nil
		})
	}
}

// A leader that was stopped, and has been replaced, answers for a moment as if nothing had happened.
func TestCluster_theHoldersServerIsADeposedLeader(t *testing.T) {
	testwait.OnlyNightly(t, "TestCluster_theHoldersServerIsCutOff has a server that answers without a quorum, too")
	t.Parallel()
	g := three(t)
	leader := g.Leader()
	var others []string
	for _, f := range g.Followers() {
		others = append(others, f.Addr())
	}
	c := openURL(t, leader.URL(), "ttl=4s")
	other := openURL(t, "zookeeper://"+others[0]+","+others[1], "ttl=10s") // it waits through an election
	m, next := c.Mutex("x"), other.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	token := m.FencingToken()
	waiting := async(func() error { return next.Lock(t.Context()) })
	look := direct(t, others...)
	eventually(t, "it waits", func() bool { return len(queue(t, look, "x")) == 2 })
	leader.Stop()
	g.Leader()
	began := time.Now()
	lost := make(chan time.Time, 1)
	go func() {
		<-m.Lost()
		lost <- time.Now()
	}()
	for i := range 30 { // now and then it comes to, for a moment
		time.Sleep(100 * time.Millisecond)
		if i%5 == 4 {
			leader.Continue()
			time.Sleep(3 * time.Millisecond)
			leader.Stop()
		}
	}
	require.NoError(t, await(t, waiting))
	taken := time.Now()
	leader.Continue()
	gone := <-lost
	assert.False(t, taken.Before(gone), "taken %v before the holder knew", gone.Sub(taken))
	t.Logf("lost %v, taken %v after the new leader", gone.Sub(began), taken.Sub(began))
	assert.Greater(t, next.FencingToken(), token)
	require.NoError(t, next.Unlock(t.Context()))
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
}

// sessionMoves has a session taken up on another server: its holds last, and on the way back to one server tokens rise.
func sessionMoves(t *testing.T, g *testserver.ZooKeeperGroup) {
	t.Helper()
	c := openURL(t, g.URL(), "ttl=12s")
	look := direct(t, g.Addrs()...)
	held, m := c.Mutex("held"), c.Mutex("x")
	require.NoError(t, held.Lock(t.Context()))
	session := sessionOf(t, look, queue(t, look, "held")[0])
	last := uint64(0)
	for _, s := range g.Servers() {
		s.Stop()
		for range 3 {
			eventually(t, "an outage is ridden out, or an error", func() bool {
				return m.Lock(withTimeout(t, patient)) == nil
			})
			assert.Greater(t, m.FencingToken(), last)
			last = m.FencingToken()
			require.NoError(t, m.Unlock(t.Context()))
		}
		s.Continue()
		direct(t, s.Addr()) // which makes a session: the server is no longer the one that the others have left
		require.NoError(t, held.Extend(t.Context()))
	}
	eventually(t, "the look is possible", func() bool { return look.State() == zk.StateHasSession })
	assert.Equal(t, session, sessionOf(t, look, queue(t, look, "held")[0]))
	require.NoError(t, held.Unlock(t.Context()))
}

// Clients on followers, one of which lags behind: the next hold has a token larger than the last.
func TestCluster_followersLag(t *testing.T) {
	testwait.OnlyNightly(t, "in the suite, too, clients of three servers see tokens that rise")
	t.Parallel()
	g := three(t)
	var clients []*locker.Client
	for _, s := range g.Servers() {
		clients = append(clients, openURL(t, s.URL(), "ttl=5s"))
	}
	lagging := g.Followers()[0]
	harness.Contend(t, clients, func(taken func() int) {
		for range 10 {
			before := taken()
			lagging.Stop()
			time.Sleep(150 * time.Millisecond)
			lagging.Continue()
			eventually(t, "locks are taken", func() bool { return taken() > before+10 })
		}
	})
}
