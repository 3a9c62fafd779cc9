package zookeeper_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// One ensemble goes through both.
func TestCluster_theLeaderIsKilled(t *testing.T) {
	t.Parallel()
	g := testserver.ZooKeeperEnsemble(t, 3)
	t.Run("its session moves", func(t *testing.T) { sessionMoves(t, g) })
	losesItsLeader(t, g)
}

// losesItsLeader costs nobody a lock.
func losesItsLeader(t *testing.T, g *testserver.ZooKeeperGroup) {
	t.Helper()
	look, ttl := direct(t, g.Addrs()...), "ttl=15s" // of which a waiter rides out a half
	m, next := openURL(t, g.URL(), ttl).Mutex("lead"), openURL(t, g.URL(), ttl).Mutex("lead")
	require.NoError(t, m.Lock(t.Context()))
	token := m.FencingToken()
	waiting := async(func() error { return next.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue(t, look, "lead")) == 2 })

	old := g.Leader()
	old.Kill()
	require.NotSame(t, old, g.Leader())
	deadline := m.Hold().Deadline()
	eventually(t, "the hold is renewed, by the new leader", func() bool { return m.Hold().Deadline().After(deadline) })
	assert.Equal(t, token, m.FencingToken())
	assert.Empty(t, waiting, "the lock is held")
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	assert.Greater(t, next.FencingToken(), token)
	require.NoError(t, next.Unlock(t.Context()))
}

// The holder is connected to a follower that the others have lost, and which goes on to answer it
// for three seconds. The leader gives the lock to another after one. The holder has to know, by
// then.
func TestCluster_theHoldersServerIsCutOff(t *testing.T) {
	t.Parallel()
	g := testserver.ZooKeeperEnsemble(t, 3, testserver.ZooKeeperPartitionable(), testserver.ZooKeeperConfig("syncLimit=30"))
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
			<-m.Hold().Lost()
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

// sessionMoves has a session taken up on another server: its holds last, and on the way back to one
// server tokens rise.
func sessionMoves(t *testing.T, g *testserver.ZooKeeperGroup) {
	t.Helper()
	c := openURL(t, g.URL(), "ttl=12s")
	look := direct(t, g.Addrs()...)
	held, m := c.Mutex("held"), c.Mutex("x")
	require.NoError(t, held.Lock(t.Context()))
	eventually(t, "its server has heard of the hold", func() bool { return len(queue(t, look, "held")) > 0 })
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
