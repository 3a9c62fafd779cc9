package zookeeper_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
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

// The holder is connected to a follower that has lost the others, and answers it for half a minute
// all the same. The hold is lost meanwhile, since no majority knows of its heartbeats.
func TestCluster_theHoldersServerIsCutOff(t *testing.T) {
	t.Parallel()
	g := testserver.ZooKeeperEnsemble(t, 3, testserver.ZooKeeperConfig("syncLimit=300"))
	follower := g.Followers()[0]
	m := openURL(t, follower.URL(), "ttl=3s").Mutex("x")
	look := direct(t, follower.Addr())
	eventually(t, "it holds", func() bool { return m.Lock(withTimeout(t, patient)) == nil })
	token, lost := m.FencingToken(), m.Hold().Lost()
	for _, s := range g.Servers() {
		if s != follower {
			s.Stop()
			t.Cleanup(s.Continue)
		}
	}
	<-lost
	_, _, err := look.Exists("/")
	require.NoError(t, err, "the follower answers")
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
	for _, s := range g.Servers() {
		s.Continue()
	}
	next := openURL(t, g.URL(), "ttl=3s").Mutex("x")
	eventually(t, "another holds", func() bool { return next.Lock(withTimeout(t, patient)) == nil })
	assert.Greater(t, next.FencingToken(), token)
	require.NoError(t, next.Unlock(t.Context()))
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

// Whether the servers' tick is known, or taken to be the longest.
func TestSilence_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	t.Parallel()
	for _, parameters := range []string{"", "&tick=100ms"} {
		t.Run(parameters, func(t *testing.T) {
			t.Parallel()
			network := testserver.NewProxy(t, testserver.SharedZooKeeper(t).Addr())
			c, err := locker.Open(t.Context(), "zookeeper://"+network.Addr()+"?prefix="+space(t)+"&ttl="+harness.SilenceTTL.String()+parameters)
			require.NoError(t, err)
			defer func() { assert.NoError(t, c.Close()) }()
			var end func()
			harness.OutlivesSilence(t, c.Mutex("x"), func() { end = silence(network) }, func() { end() })
			harness.OutlivesSlowness(t, c.Mutex("x"), network)
		})
	}
}

// The servers fall silent before an Unlock, and answer again just after the hold's deadline: the
// session goes on, and the node does not.
func TestSilence_untilAfterAnUnlockLeavesNothing(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	s := testserver.ZooKeeper(t)
	c := openURL(t, "zookeeper://"+s.Addr(), "ttl="+ttl.String())
	h, err := c.Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	s.Stop()
	time.Sleep(time.Until(h.Deadline()) - ttl/4)
	require.ErrorIs(t, h.Unlock(t.Context()), locker.ErrLost)
	s.Continue()
	h, err = c.Mutex("x").Acquire(withTimeout(t, patient))
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
}

// A Client is closed while a request is under way that makes the node of a lock, and its answer
// comes just then.
func TestClose_whileANodeIsMade(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	for i := range 20 {
		proxy := testserver.NewProxy(t, server.Addr())
		c := openURL(t, "zookeeper://"+proxy.Addr(), "ttl=10s")
		first := c.Mutex("first")
		require.NoError(t, first.Lock(t.Context()))
		require.NoError(t, first.Unlock(t.Context()))
		proxy.HoldReplies(true)
		locking := async(func() error { return c.Mutex(fmt.Sprint(i)).Lock(t.Context()) })
		eventually(t, "a request was answered", func() bool { _, replies := proxy.Held(); return replies > 0 })
		proxy.HoldReplies(false)
		proxy.ReleaseReplies()
		require.NoError(t, c.Close())
		require.ErrorIs(t, await(t, locking), locker.ErrClosed)
	}
}

// A request whose connection breaks is made once more, on the next one: the core tries the Extend
// of an application once.
func TestExtend_whoseConnectionBreaks(t *testing.T) {
	t.Parallel()
	proxy := testserver.NewProxy(t, testserver.SharedZooKeeper(t).Addr())
	m := openURL(t, "zookeeper://"+proxy.Addr(), "ttl=30s", locker.WithoutRenewal()).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, m.Extend(t.Context()))
	proxy.HoldReplies(true)
	extending := async(func() error { return m.Extend(t.Context()) })
	eventually(t, "it was answered", func() bool { _, replies := proxy.Held(); return replies > 0 })
	proxy.HoldReplies(false)
	proxy.ResetConns()
	require.NoError(t, await(t, extending))
	require.NoError(t, m.Unlock(t.Context()))
}

func TestInspect(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	network, look, root := testserver.NewProxy(t, s.Addr()), direct(t, s.Addr()), "/"+space(t)
	_, err := look.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	harness.Inspect(t, harness.Inspection{
		URL: "zookeeper://" + network.Addr() + root + "/path?tick=100ms", TTL: 2 * time.Second,
		Queue: true, IDs: true, TellsHolder: true,
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

// The servers count children up to 2147483647, and then give each that number. A contender with a
// number near that neither holds nor waits, and who got one below keeps its place, and the lock in
// its turn. Then nobody keeps the container from being removed, and numbers begin anew. Tokens do
// not.
func TestNumbers_thoseWhoStandInTheQueueHoldInTurn(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.ZooKeeperReaping())
	look, note := direct(t, s.Addr()), parent(t, "x")+"/note" // which is not ours, and keeps the servers from removing its parent
	for _, node := range []string{"/" + space(t), parent(t, "x")} {
		_, err := look.CreateContainer(node, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	_, err := look.Create(note, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	look.Close() // a server that starts may never answer it (ZOOKEEPER-5051), and the library waits for 200 s
	s.SetCreated(parent(t, "x"), math.MaxInt32-1<<20-1)
	look = direct(t, s.Addr())
	c := openURL(t, s.URL(), "ttl=30s")
	first, second, third := c.Mutex("x"), c.Mutex("x"), c.Mutex("x")
	require.NoError(t, first.Lock(t.Context()))
	waiting := async(func() error { return second.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue(t, look, "x")) == 3 })
	err = third.Lock(withTimeout(t, patient))
	require.ErrorContains(t, err, parent(t, "x")+": the servers number children up to 2147483647")
	require.ErrorContains(t, err, "delete it")
	require.NotErrorIs(t, err, locker.ErrHeld)
	made := func() int32 {
		_, stat, err := look.Exists(parent(t, "x"))
		require.NoError(t, err)
		return stat.Cversion
	}
	before := made()
	require.ErrorContains(t, third.Lock(withTimeout(t, patient)), "number children up to")
	assert.Equal(t, before, made(), "who is refused again makes no node: numbers are left to those that wait")
	require.ErrorIs(t, third.TryLock(t.Context()), locker.ErrHeld, "so it is")
	require.Len(t, queue(t, look, "x"), 3, "they have left nothing behind")
	require.NoError(t, first.Extend(t.Context()))
	token := first.FencingToken()
	require.NoError(t, first.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	assert.Greater(t, second.FencingToken(), token)
	token = second.FencingToken()
	require.NoError(t, second.Unlock(t.Context()))
	require.NoError(t, look.Delete(note, -1))
	eventually(t, "numbers begin anew", func() bool { return third.Lock(t.Context()) == nil })
	assert.Greater(t, third.FencingToken(), token)
	assert.LessOrEqual(t, number(queue(t, look, "x")[0]), "0000000001")
	require.NoError(t, third.Unlock(t.Context()))
	eventually(t, "nothing is left at all", func() bool {
		found, _, err := look.Exists("/" + space(t))
		require.NoError(t, err)
		return !found
	})
}
