package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/testserver"
)

// contend has holders follow each other while disturb is at work, and says how often. Two of them at once, or a
// token that does not rise, fail the test.
func contend(t *testing.T, clients []*locker.Client, disturb func()) {
	t.Helper()
	stop, cancel := context.WithCancel(t.Context())
	defer cancel()
	inside := make(chan uint64, 1)
	inside <- 0
	done := make([]<-chan error, len(clients))
	for i, c := range clients {
		done[i] = async(func() error {
			m := c.Mutex("contended")
			for stop.Err() == nil {
				if m.Lock(stop) != nil {
					continue // an outage is an error, or a wait
				}
				select {
				case last := <-inside:
					token := m.FencingToken()
					if token != 0 { // else it is lost already
						assert.Greater(t, token, last)
					}
					time.Sleep(tick)
					inside <- max(last, token)
				default:
					select {
					case <-m.Lost():
					default:
						t.Error("two hold at once")
					}
				}
				_ = m.Unlock(context.WithoutCancel(stop))
			}
			return nil
		})
	}
	disturb()
	cancel()
	for _, d := range done {
		require.NoError(t, await(t, d))
	}
	assert.Positive(t, <-inside)
}

func TestCluster_theLeaderIsKilled(t *testing.T) {
	g := testserver.EtcdCluster(t, 3)
	c, other := openURL(t, g.URL()+"?ttl=5s"), openURL(t, g.URL()+"?ttl=5s")
	m, next := c.Mutex("x"), other.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	token, deadline := m.FencingToken(), m.Deadline()
	waiting := async(func() error { return next.Lock(t.Context()) })
	direct := connect(t, g.Addrs()...)
	eventually(t, "it waits", func() bool { return len(queue(t, direct, "x")) == 2 })

	old := g.Leader()
	old.Kill()
	require.NotSame(t, old, g.Leader())
	eventually(t, "the hold is renewed", func() bool { return m.Deadline().After(deadline.Add(5 * time.Second)) })
	assert.Equal(t, token, m.FencingToken())
	select {
	case err := <-waiting:
		t.Fatalf("the waiter's Lock returned %v while the lock was held", err)
	default:
	}
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	assert.Greater(t, next.FencingToken(), token)
	require.NoError(t, next.Unlock(t.Context()))
	old.Restart()
	assert.Empty(t, queue(t, direct, "x"))
}

func TestCluster_leadersAreKilledWhileLocksAreTaken(t *testing.T) {
	g := testserver.EtcdCluster(t, 3)
	clients := []*locker.Client{openURL(t, g.URL()+"?ttl=3s"), openURL(t, g.URL()+"?ttl=3s"), openURL(t, g.URL()+"?ttl=4s")}
	direct := connect(t, g.Addrs()...)
	contend(t, clients, func() {
		for range 4 {
			before := revisionNow(t, direct)
			old := g.Leader()
			old.Kill()
			eventually(t, "locks are taken without it", func() bool { return revisionNow(t, direct) > before+20 })
			old.Restart()
		}
	})
	eventually(t, "nobody stands in the queue", func() bool { return len(queue(t, direct, "contended")) == 0 })
}

func TestCluster_oneMemberStops(t *testing.T) {
	g := testserver.EtcdCluster(t, 3)
	direct := connect(t, g.Addrs()...)
	for _, which := range []string{"the leader", "a follower"} {
		t.Run(which, func(t *testing.T) {
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

func TestCluster_theMajorityIsLostAndComesBack(t *testing.T) {
	g := testserver.EtcdCluster(t, 3)
	c, other := openURL(t, g.URL()+"?ttl=2s"), openURL(t, g.URL()+"?ttl=2s")
	m, waiter := c.Mutex("x"), other.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	first, deadline := m.FencingToken(), m.Deadline()
	waiting := async(func() error { return waiter.Lock(t.Context()) })
	direct := connect(t, g.Addrs()...)
	eventually(t, "it waits", func() bool { return len(queue(t, direct, "x")) == 2 })
	g.Servers()[0].Kill()
	g.Servers()[1].Kill()

	err := await(t, waiting)
	require.Error(t, err, "a waiter rides out half a TTL, and this is more")
	require.NotErrorIs(t, err, locker.ErrHeld)
	err = waiter.TryLock(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrHeld)
	require.ErrorIs(t, waiter.Lock(withTimeout(t, 50*time.Millisecond)), context.DeadlineExceeded)
	select {
	case <-m.Lost():
	case <-time.After(patient):
		t.Fatal("not lost")
	}
	assert.False(t, time.Now().Before(deadline), "not before its time")
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)

	g.Servers()[0].Restart()
	g.Servers()[1].Restart()
	eventually(t, "it can be locked again, whatever was left behind", func() bool {
		return waiter.Lock(withTimeout(t, patient)) == nil
	})
	assert.Greater(t, waiter.FencingToken(), first)
	require.NoError(t, waiter.Unlock(t.Context()))
	eventually(t, "nobody stands in the queue", func() bool { return len(queue(t, direct, "x")) == 0 })
}
