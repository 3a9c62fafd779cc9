package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// others are the members of a cluster but one.
func others(g *testserver.EtcdGroup, s *testserver.EtcdServer) (rest []*testserver.EtcdServer) {
	for _, member := range g.Servers() {
		if member != s {
			rest = append(rest, member)
		}
	}
	return rest
}

// fired reports whether a hold is lost by now.
func fired(m *locker.Mutex) bool {
	select {
	case <-m.Hold().Lost():
		return true
	default:
		return false
	}
}

// A client reaches none but the leader, which is cut off. What it holds is lost before the others
// can take it, and it takes nothing.
func TestPartition_aMinorityHoldsAndTakesNothing(t *testing.T) {
	t.Parallel()
	g := testserver.EtcdCluster(t, 3, testserver.EtcdPartitionable())
	alone := g.Leader()
	rest := others(g, alone)
	direct := connect(t, rest[0].Addr(), rest[1].Addr())
	minority := openURL(t, alone.URL()+"?ttl=6s")
	majority := clientOf(t, direct, locker.WithTTL(20*time.Second)) // its holds outlast two elections
	x, nextX := minority.Mutex("x"), majority.Mutex("x")
	y, nextY := majority.Mutex("y"), minority.Mutex("y")
	require.NoError(t, lockAtLast(t, x))
	require.NoError(t, y.Lock(t.Context()))
	token := x.FencingToken()
	waitsForX := async(func() error { return nextX.Lock(t.Context()) })
	waitsForY := async(func() error { return nextY.Lock(t.Context()) })
	eventually(t, "both wait", func() bool { return len(queue(t, direct, "x"))+len(queue(t, direct, "y")) == 4 })

	g.Isolate(alone)
	err := await(t, waitsForY)
	require.Error(t, err, "a waiter rides out half a TTL, and this is more")
	require.NotErrorIs(t, err, locker.ErrHeld)
	err = minority.Mutex("z").TryLock(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrHeld)

	require.NoError(t, await(t, waitsForX))
	assert.Zero(t, x.FencingToken(), "the majority's hold began when the minority's had ended")
	assert.True(t, time.Now().After(x.Hold().Deadline()))
	assert.Greater(t, nextX.FencingToken(), token)
	require.NoError(t, y.Extend(t.Context()), "nothing has happened to the majority's")
	require.NoError(t, y.Unlock(t.Context()))
	require.ErrorIs(t, x.Unlock(t.Context()), locker.ErrLost)

	g.Heal()
	waitsForX = async(func() error { return lockAtLast(t, x) })
	eventually(t, "the minority's client is back", func() bool { return len(queue(t, direct, "x")) == 2 })
	token = nextX.FencingToken()
	require.NoError(t, nextX.Unlock(t.Context()))
	require.NoError(t, await(t, waitsForX))
	assert.Greater(t, x.FencingToken(), token)
	require.NoError(t, x.Unlock(t.Context()))
	eventually(t, "nothing is left", func() bool { return len(queue(t, direct, "x"))+len(queue(t, direct, "y")) == 0 })
}

// lockAtLast locks m, when the outage is over.
func lockAtLast(t *testing.T, m *locker.Mutex) error {
	t.Helper()
	ctx := withTimeout(t, patient)
	for {
		if err := m.Lock(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
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
