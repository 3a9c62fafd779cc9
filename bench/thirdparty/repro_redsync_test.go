package thirdparty

import (
	"bufio"
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func redsyncAt(t *testing.T, addrs ...string) *redsync.Redsync {
	t.Helper()
	pools := make([]redsyncpool.Pool, len(addrs))
	for i, addr := range addrs {
		pools[i] = redsyncredis.NewPool(dialRedis(t, addr))
	}
	return redsync.New(pools...)
}

// warm has there be connections, and scripts in the server's cache.
func warm(t *testing.T, rs *redsync.Redsync) {
	t.Helper()
	m := rs.NewMutex("warm")
	require.NoError(t, m.Lock())
	_, err := m.Unlock()
	require.NoError(t, err)
}

func TestRepro_redsync_takesAnyName(t *testing.T) {
	rs := redsyncAt(t, startRedis(t).Addr())
	for _, name := range []string{"", "\xff"} {
		assert.NoError(t, rs.NewMutex(name).Lock(), "%q", name)
	}
}

func TestRepro_redsync_interruptedLockSaysOnlyFailed(t *testing.T) {
	rs := redsyncAt(t, startRedis(t).Addr())
	require.NoError(t, rs.NewMutex("a").Lock())
	ctx := testwait.Context(t, soon)
	err := rs.NewMutex("a").LockContext(ctx)
	require.Error(t, ctx.Err())
	assert.Equal(t, redsync.ErrFailed, err)
}

func TestRepro_redsync_cleansUpOnTheCallersContext(t *testing.T) {
	server, proxy := startProxied(t)
	rs := redsyncAt(t, proxy.Addr())
	warm(t, rs)
	proxy.HoldReplies(true)
	ctx := testwait.Context(t, time.Second)
	m := rs.NewMutex("a", redsync.WithExpiry(time.Minute)) // of which 3 s are for an attempt
	require.Error(t, m.LockContext(ctx))
	proxy.ReleaseReplies()
	time.Sleep(soon) // for a clean-up
	assert.True(t, server.has(t, "a"), "the key of a Lock that failed")
}

func TestRepro_redsync_callsOutlastTheExpiry(t *testing.T) {
	server := startRedis(t)
	rs := redsyncAt(t, server.Addr())
	toUnlock, toExtend := rs.NewMutex("a", redsync.WithExpiry(soon)), rs.NewMutex("b", redsync.WithExpiry(soon))
	require.NoError(t, toUnlock.Lock())
	require.NoError(t, toExtend.Lock())
	waitForServer(t, server.RedisServer, 4*soon, map[string]func() error{
		"Unlock": func() error { _, err := toUnlock.Unlock(); return err },
		"Extend": func() error { _, err := toExtend.Extend(); return err },
	})
}

func TestRepro_redsync_renewsNothing(t *testing.T) {
	rs := redsyncAt(t, startRedis(t).Addr())
	require.NoError(t, rs.NewMutex("a", redsync.WithExpiry(soon), redsync.WithTimeoutFactor(0.5)).Lock())
	patience.Until(t, "another has the lock", func() bool { return rs.NewMutex("a").TryLock() == nil })
}

func TestRepro_redsync_lostReplySaysTaken(t *testing.T) {
	server, proxy := startProxied(t)
	rs := redsyncAt(t, proxy.Addr())
	warm(t, rs)
	proxy.HoldReplies(true)
	locked := testwait.Go(rs.NewMutex("a", redsync.WithExpiry(time.Minute), redsync.WithTimeoutFactor(0.5)).TryLock)
	patience.Until(t, "SET is applied", func() bool { return server.has(t, "a") })
	proxy.HoldReplies(false)
	proxy.ResetConns() // the client asks again
	var taken *redsync.ErrTaken
	assert.ErrorAs(t, patience.Result(t, locked), &taken)
}

func TestRepro_redsync_failedAttemptsSendReleases(t *testing.T) {
	server := startRedis(t)
	rs := redsyncAt(t, server.Addr())
	warm(t, rs)
	require.NoError(t, rs.NewMutex("a").Lock())
	server.forget(t)
	for range 10 {
		require.Error(t, rs.NewMutex("a").TryLock())
	}
	assert.Equal(t, 10, server.calls(t, "set"))
	assert.Equal(t, 10, server.calls(t, "evalsha"))
}

func TestRepro_redsync_stoppedNodeDelaysUnlock(t *testing.T) {
	nodes := []redisNode{startRedis(t), startRedis(t), startRedis(t)}
	addrs := []string{nodes[0].Addr(), nodes[1].Addr(), nodes[2].Addr()}
	const expiry = 30 * time.Second
	rs := redsyncAt(t, addrs...)
	toUnlock, toExtend := rs.NewMutex("a", redsync.WithExpiry(expiry)), rs.NewMutex("b", redsync.WithExpiry(expiry))
	require.NoError(t, toUnlock.Lock())
	require.NoError(t, toExtend.Lock())
	// A client as it is by default does not heed the ctx of Lock's attempts either.
	var pools []redsyncpool.Pool
	for _, addr := range addrs {
		rdb := goredis.NewClient(&goredis.Options{Addr: addr})
		t.Cleanup(func() { _ = rdb.Close() })
		pools = append(pools, redsyncredis.NewPool(rdb))
	}
	toLock := redsync.New(pools...).NewMutex("c", redsync.WithExpiry(expiry))

	waitForServer(t, nodes[2].RedisServer, 3*time.Second, map[string]func() error{
		"Unlock": func() error { _, err := toUnlock.Unlock(); return err },
		"Extend": func() error { _, err := toExtend.Extend(); return err },
		"Lock":   toLock.Lock,
	})
}

func TestRepro_redsync_lateSetOutlivesUnlock(t *testing.T) {
	a, b := startRedis(t), startRedis(t)
	c, proxy := startProxied(t)
	rs := redsyncAt(t, a.Addr(), b.Addr(), proxy.Addr())
	warm(t, rs)
	m := rs.NewMutex("a", redsync.WithExpiry(time.Minute), redsync.WithTimeoutFactor(0.01))
	proxy.HoldRequests(true)
	require.NoError(t, m.Lock())
	proxy.HoldRequests(false) // for new connections; what was sent before arrives later
	_, err := m.Unlock()
	require.NoError(t, err)
	require.False(t, c.has(t, "a"))
	proxy.ReleaseRequests()
	patience.Until(t, "the key is back", func() bool { return c.has(t, "a") })
	left, err := c.direct.PTTL(t.Context(), "a").Result()
	require.NoError(t, err)
	assert.Greater(t, left, 30*time.Second)
}

// Tests of libraries of other languages run a script in adapters/repro, in which there is the library and nothing of ours.

const usualPython = "/usr/bin/python3"

// scripted returns the command of a script, with the address of its server.
func scripted(t *testing.T, interpreter, file, address string, needs ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, nil, interpreter, "repro/"+file, needs...)()
	cmd.Env = append(cmd.Env, "LOCKER_ADDRESS="+address)
	return cmd
}

// printed returns what a script prints, which has to end well.
func printed(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// interruptedScript runs a script that prints a line, waits for one after between, and prints another, which is returned.
func interruptedScript(t *testing.T, cmd *exec.Cmd, between func()) string {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan(), "its first line")
	between()
	_, err = stdin.Write([]byte("\n"))
	require.NoError(t, err)
	require.True(t, lines.Scan(), "its second line")
	said := lines.Text()
	require.NoError(t, cmd.Wait())
	return said
}

func TestRepro_redispy_doesNotCountItsTime(t *testing.T) {
	n := startRedis(t)
	assert.Empty(t, printed(t, scripted(t, usualPython, "redispy_time.py", n.Addr(), pythonPackages+"/redis")))
}

func TestRepro_redispy_aLateAcquireHolds(t *testing.T) {
	lateAcquireHolds(t, func(address string) *exec.Cmd {
		return scripted(t, usualPython, "redispy_late.py", address, pythonPackages+"/redis")
	})
}

func TestRepro_npmRedlock_aLateAcquireHolds(t *testing.T) {
	lateAcquireHolds(t, func(address string) *exec.Cmd {
		return scripted(t, "node", "redlock_late.js", address, nodePackages+"/redlock")
	})
}

// lateAcquireHolds keeps back what a script sends, until its acquire has failed.
func lateAcquireHolds(t *testing.T, script func(address string) *exec.Cmd) {
	t.Helper()
	n, p := startProxied(t)
	p.HoldRequests(true)
	cmd := script(p.Addr())
	cmd.Env = append(cmd.Env, "LOCKER_DIRECT="+n.Addr())
	require.Equal(t, "failed", printed(t, cmd))
	require.False(t, n.has(t, "x"))
	p.ReleaseRequests()
	patience.Until(t, "the request has arrived, and holds", func() bool { return n.has(t, "x") })
	left, err := n.direct.PTTL(t.Context(), "x").Result()
	require.NoError(t, err)
	assert.Greater(t, left, 50*time.Second, "of 60")
}

func TestRepro_kazoo_cancelledDoesNotSayHeld(t *testing.T) {
	s := testserver.SharedZooKeeper(t)
	assert.Equal(t, "cancelled, and no word of the holder", printed(t, scripted(t, usualPython, "kazoo_cancel.py", s.Addr(), pythonPackages+"/kazoo")))
}

func TestRepro_kazoo_timeoutDoesNotBoundRequests(t *testing.T) {
	cmd := scripted(t, usualPython, "kazoo_silent.py", "", pythonPackages+"/kazoo")
	s := testserver.ZooKeeper(t)
	cmd.Env = append(cmd.Env, "LOCKER_ADDRESS="+s.Addr())
	assert.Equal(t, "still waits", interruptedScript(t, cmd, s.Stop))
	s.Continue()
}

func TestRepro_kazoo_isAcquiredStays(t *testing.T) {
	cmd := scripted(t, usualPython, "kazoo_stays.py", "", pythonPackages+"/kazoo")
	s := testserver.ZooKeeper(t)
	cmd.Env = append(cmd.Env, "LOCKER_ADDRESS="+s.Addr())
	assert.Equal(t, "is_acquired", interruptedScript(t, cmd, func() {
		conn := dialZooKeeper(t, s.Addr(), time.Second)
		nodes, _, err := conn.Children("/locks/x")
		require.NoError(t, err)
		for _, node := range nodes { // as the end of the session does
			require.NoError(t, conn.Delete("/locks/x/"+node, -1))
		}
	}))
}

func TestRepro_npmEtcd3_cannotBeCancelled(t *testing.T) {
	cmd := scripted(t, "node", "etcd3_methods.js", "", nodePackages+"/etcd3")
	assert.Equal(t, "acquire constructor do leaseId options release ttl 0", printed(t, cmd), "and acquire takes no argument")
}

func TestRepro_npmEtcd3_doesNotTellOfALoss(t *testing.T) {
	s := testserver.Etcd(t)
	assert.Equal(t, "both hold", printed(t, scripted(t, "node", "etcd3_loss.js", s.Addr(), nodePackages+"/etcd3")))
}

func redislockAt(t *testing.T, addr string) *redislock.Client {
	t.Helper()
	c := redislock.New(dialRedis(t, addr))
	l, err := c.Obtain(t.Context(), "warm", time.Minute, nil) // there is a connection, and the scripts are known
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	return c
}

func TestRepro_redislock_takesAnyName(t *testing.T) {
	c := redislockAt(t, startRedis(t).Addr())
	for _, name := range []string{"", "\xff"} {
		_, err := c.Obtain(t.Context(), name, time.Minute, nil)
		assert.NoError(t, err, "%q", name)
	}
}

func TestRepro_redislock_interruptedObtainLeavesItsKey(t *testing.T) {
	server, proxy := startProxied(t)
	c := redislockAt(t, proxy.Addr())
	proxy.HoldReplies(true)
	ctx := testwait.Context(t, time.Second)
	_, err := c.Obtain(ctx, "a", time.Minute, nil)
	require.Error(t, err)
	proxy.ReleaseReplies()
	time.Sleep(soon) // for a clean-up
	assert.True(t, server.has(t, "a"), "the key of an Obtain that failed")
}

func TestRepro_redislock_lateSetIsApplied(t *testing.T) {
	const ttl = 2 * time.Second
	server, proxy := startProxied(t)
	c := redislockAt(t, proxy.Addr())
	proxy.HoldRequests(true)
	ctx := testwait.Context(t, ttl/4)
	_, err := c.Obtain(ctx, "a", ttl, nil)
	require.Error(t, err)
	time.Sleep(ttl)
	proxy.ReleaseRequests()
	patience.Until(t, "the key of an Obtain that failed long ago", func() bool { return server.has(t, "a") })
}

func TestRepro_redislock_cancellationIsNotHeeded(t *testing.T) {
	server := startRedis(t)
	c := redislockAt(t, server.Addr())
	held, err := c.Obtain(t.Context(), "a", soon, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(soon, cancel) // and the TTL is over
	waitForServer(t, server.RedisServer, 4*soon, map[string]func() error{
		"Obtain":  func() error { _, err := c.Obtain(ctx, "b", time.Minute, nil); return err },
		"Release": func() error { return held.Release(ctx) },
		"Refresh": func() error { return held.Refresh(ctx, time.Minute, nil) }, // its TTL is its deadline
	})
}

func TestRepro_redislock_lossIsKnownToTheServerAlone(t *testing.T) {
	server := startRedis(t)
	c := redislockAt(t, server.Addr())
	l, err := c.Obtain(t.Context(), "a", soon, nil)
	require.NoError(t, err)
	time.Sleep(2 * soon)
	server.Stop()
	ctx := testwait.Context(t, soon)
	_, err = l.TTL(ctx)
	require.Error(t, err, "the TTL is over, as its owner could know")
	server.Continue()
	ttl, err := l.TTL(t.Context())
	require.NoError(t, err)
	assert.Zero(t, ttl)
}

func TestRepro_redislock_lostReplySaysNotHeld(t *testing.T) {
	server, proxy := startProxied(t)
	c := redislockAt(t, proxy.Addr())
	l, err := c.Obtain(t.Context(), "a", time.Minute, nil)
	require.NoError(t, err)
	proxy.HoldReplies(true)
	released := testwait.Go(func() error { return l.Release(t.Context()) })
	patience.Until(t, "the release is applied", func() bool { return !server.has(t, "a") })
	proxy.HoldReplies(false)
	proxy.ResetConns() // the client asks again
	assert.ErrorIs(t, patience.Result(t, released), redislock.ErrLockNotHeld)
}

func TestRepro_redislock_givesUpAfterOneTTL(t *testing.T) {
	c := redislockAt(t, startRedis(t).Addr())
	_, err := c.Obtain(t.Context(), "a", time.Minute, nil)
	require.NoError(t, err)
	_, err = c.Obtain(t.Context(), "a", soon, nil)
	require.ErrorIs(t, err, redislock.ErrNotObtained)
	_, err = c.Obtain(t.Context(), "a", soon, &redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NoError(t, t.Context().Err(), "the ctx that Obtain was given")
}

func TestRepro_redislock_waitersInLockstep(t *testing.T) {
	server := startRedis(t)
	c := redislockAt(t, server.Addr())
	const waiters, holds, backoff = 6, 40 * time.Millisecond, 200 * time.Millisecond
	const inStep = waiters * (waiters + 1) / 2 // attempts: all ask at once, all but one, all but two
	attempts := 0
	for i := 0; i < 5 && attempts < inStep; i++ { // a busy machine puts them out of step
		first, err := c.Obtain(t.Context(), "a", time.Minute, nil)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				l, err := c.Obtain(t.Context(), "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(backoff)})
				if assert.NoError(t, err) {
					time.Sleep(holds)
					assert.NoError(t, l.Release(t.Context()))
				}
			})
		}
		time.Sleep(backoff / 2)
		require.NoError(t, first.Release(t.Context()))
		server.forget(t)
		wg.Wait()
		attempts = server.calls(t, "evalsha") - waiters // releases
	}
	assert.GreaterOrEqual(t, attempts, inStep)
}
