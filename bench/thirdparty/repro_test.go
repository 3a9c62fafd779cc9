package thirdparty

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-zookeeper/zk"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// Tests called TestRepro_ show one finding each, by the library's own API on a real server: of
// those that no scenario of the suite shows each time. They pass as long as the finding is there:
// one that fails after an update has found a repair, and its finding has to go.

func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }

const (
	soon     = 300 * time.Millisecond // by far longer than a request takes
	patience = testwait.Patience(20 * time.Second)
)

// pending requires that a call does not return for d.
func pending(t *testing.T, call string, done <-chan error, d time.Duration) {
	t.Helper()
	select {
	case err := <-done:
		require.Fail(t, call+" has returned", "it says: %v", err)
	case <-time.After(d):
	}
}

// redisNode is a server, and a client of it that no fault disturbs.
type redisNode struct {
	*testserver.RedisServer
	direct *goredis.Client
}

func startRedis(t *testing.T) redisNode {
	t.Helper()
	logging.Disable() // go-redis prints what is broken on purpose
	s := testserver.Redis(t)
	return redisNode{s, dialRedis(t, s.Addr())}
}

// startProxied also returns a proxy before the server.
func startProxied(t *testing.T) (redisNode, *testserver.Proxy) {
	t.Helper()
	n := startRedis(t)
	return n, testserver.NewProxy(t, n.Addr())
}

func (n redisNode) has(t *testing.T, key string) bool {
	t.Helper()
	count, err := n.direct.Exists(t.Context(), key).Result()
	require.NoError(t, err)
	return count == 1
}

// calls returns how often commands were executed that begin with prefix, since forget.
func (n redisNode) calls(t *testing.T, prefix string) (total int) {
	t.Helper()
	stats, err := n.Info("INFO", "commandstats")
	require.NoError(t, err)
	for name, fields := range stats {
		var calls int
		if strings.HasPrefix(name, "cmdstat_"+prefix) {
			_, err := fmt.Sscanf(fields, "calls=%d,", &calls)
			require.NoError(t, err)
			total += calls
		}
	}
	return total
}

func (n redisNode) forget(t *testing.T) {
	t.Helper()
	require.NoError(t, n.direct.ConfigResetStat(t.Context()).Err())
}

// sessionAt has a client of its own, and lasts a minute.
func sessionAt(t *testing.T, addr string) *concurrency.Session {
	t.Helper()
	return openSession(t, dialEtcd(t, addr), time.Minute)
}

// How late depends on when in its second the last answer came.
func TestRepro_concurrencyMutex_doneComesLate(t *testing.T) {
	const ttl = time.Second
	server := testserver.Etcd(t)
	late := time.Duration(0)
	for try := 0; try < 10 && late < soon; try++ {
		s := openSession(t, dialEtcd(t, server.Addr()), ttl)
		last := time.Now()
		answers, err := s.Client().KeepAlive(t.Context(), s.Lease()) // the same that the Session hears
		require.NoError(t, err)
		require.NoError(t, concurrency.NewMutex(s, strconv.Itoa(try)).Lock(t.Context()))
		server.Stop()
		for range answers {
			last = time.Now()
		}
		<-s.Done()
		late = time.Since(last) - ttl
		server.Continue()
	}
	assert.GreaterOrEqual(t, late, soon)
}

// keys counts those below a name.
func keys(t *testing.T, cli *clientv3.Client, name string) int {
	t.Helper()
	resp, err := cli.Get(t.Context(), name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	return int(resp.Count)
}

func TestRepro_concurrencyMutex_lostReplyLeavesTheKey(t *testing.T) {
	server := testserver.SharedEtcd(t)
	proxy := testserver.NewProxy(t, server.Addr())
	other := sessionAt(t, server.Addr())
	m := concurrency.NewMutex(sessionAt(t, proxy.Addr()), t.Name())
	proxy.HoldReplies(true)
	ctx, cancel := context.WithCancel(t.Context())
	locked := testwait.Go(func() error { return m.Lock(ctx) })
	patience.Until(t, "the Txn is applied", func() bool { return keys(t, other.Client(), t.Name()) == 1 })
	cancel()
	require.Error(t, patience.Result(t, locked))
	proxy.ReleaseReplies()
	time.Sleep(soon) // for a clean-up
	err := concurrency.NewMutex(other, t.Name()).TryLock(t.Context())
	assert.ErrorIs(t, err, concurrency.ErrLocked, "nobody holds the lock")
}

func TestRepro_concurrencyMutex_unlockAgainDeletesANewerHold(t *testing.T) {
	server := testserver.SharedEtcd(t)
	proxy := testserver.NewProxy(t, server.Addr())
	s, other := sessionAt(t, proxy.Addr()), sessionAt(t, server.Addr())
	older, newer := concurrency.NewMutex(s, t.Name()), concurrency.NewMutex(s, t.Name())
	require.NoError(t, older.Lock(t.Context()))
	proxy.HoldReplies(true)
	ctx, cancel := context.WithCancel(t.Context())
	unlocked := testwait.Go(func() error { return older.Unlock(ctx) })
	patience.Until(t, "the release is applied", func() bool { return keys(t, other.Client(), t.Name()) == 0 })
	cancel()
	require.Error(t, patience.Result(t, unlocked))
	proxy.ReleaseReplies()

	require.NoError(t, newer.Lock(t.Context()))
	require.NoError(t, older.Unlock(t.Context()), "once more")
	assert.NoError(t, concurrency.NewMutex(other, t.Name()).TryLock(t.Context()), "while the newer one holds")
}

func TestRepro_concurrencyMutex_cancelledWaitOutlastsItsContext(t *testing.T) {
	server := testserver.Etcd(t)
	require.NoError(t, concurrency.NewMutex(sessionAt(t, server.Addr()), "a").Lock(t.Context()))
	waiter := sessionAt(t, server.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	locked := testwait.Go(func() error { return concurrency.NewMutex(waiter, "a").Lock(ctx) })
	patience.Until(t, "two are in the queue", func() bool { return keys(t, waiter.Client(), "a") == 2 })
	pending(t, "Lock", locked, soon)
	server.Stop()
	cancel()
	pending(t, "Lock", locked, 2*time.Second)
	server.Continue()
	require.ErrorIs(t, patience.Result(t, locked), context.Canceled)
}

var anybody = zk.WorldACL(zk.PermAll)

// connAt has a session that lasts a minute.
func connAt(t *testing.T, addr string) *zk.Conn {
	t.Helper()
	return dialZooKeeper(t, addr, time.Minute)
}

// at is the path of the test's own lock.
func at(t *testing.T) string {
	t.Helper()
	return "/" + t.Name()
}

// queue are the nodes of the test's lock.
func queue(t *testing.T, conn *zk.Conn) []string {
	t.Helper()
	children, _, err := conn.Children(at(t))
	require.NoError(t, err)
	return children
}

func TestRepro_zkLock_cannotBeCancelled(t *testing.T) {
	server := testserver.SharedZooKeeper(t)
	holder, waiter := connAt(t, server.Addr()), connAt(t, server.Addr())
	require.NoError(t, zk.NewLock(holder, at(t), anybody).Lock())
	l := zk.NewLock(waiter, at(t), anybody)
	locked := testwait.Go(l.Lock)
	patience.Until(t, "two are in the queue", func() bool { return len(queue(t, holder)) == 2 })
	require.ErrorIs(t, l.Unlock(), zk.ErrNotLocked) // which is no way to leave the queue
	pending(t, "Lock", locked, soon)
	waiter.Close() // the only one that there is
	require.Error(t, patience.Result(t, locked))
}

func TestRepro_zkLock_foreignChildFailsEverybody(t *testing.T) {
	server := testserver.SharedZooKeeper(t)
	conn := connAt(t, server.Addr())
	l := zk.NewLock(conn, at(t), anybody)
	require.NoError(t, l.Lock())
	require.NoError(t, l.Unlock())
	_, err := conn.Create(at(t)+"/config", nil, 0, anybody)
	require.NoError(t, err)
	for range 2 {
		assert.Error(t, zk.NewLock(connAt(t, server.Addr()), at(t), anybody).Lock())
	}
}

func TestRepro_zkLock_vanishedNodeIsForEver(t *testing.T) {
	server := testserver.SharedZooKeeper(t)
	conn := connAt(t, server.Addr())
	l := zk.NewLock(conn, at(t), anybody)
	require.NoError(t, l.Lock())
	require.NoError(t, conn.Delete(at(t)+"/"+queue(t, conn)[0], -1))
	for range 2 {
		require.ErrorIs(t, l.Unlock(), zk.ErrNoNode)
		require.ErrorIs(t, l.Lock(), zk.ErrDeadlock)
	}
}

func TestRepro_zkLock_outlastsItsTimeOut(t *testing.T) {
	const session = 3 * time.Second // a client tries to connect each second
	server := testserver.ZooKeeper(t)
	conn := dialZooKeeper(t, server.Addr(), session)
	require.NoError(t, zk.NewLock(conn, at(t), anybody).Lock())
	id := conn.SessionID()
	server.Kill()
	time.Sleep(session + soon)
	server.Restart()
	patience.Until(t, "the holder is connected", func() bool { return conn.State() == zk.StateHasSession })
	assert.Equal(t, id, conn.SessionID())
	locked := testwait.Go(zk.NewLock(connAt(t, server.Addr()), at(t), anybody).Lock)
	pending(t, "another's Lock", locked, session)
	conn.Close()
	require.NoError(t, patience.Result(t, locked))
}

func TestRepro_zkLock_unlockOutlastsTheSession(t *testing.T) {
	const session = 400 * time.Millisecond
	server := testserver.ZooKeeper(t)
	longest := time.Duration(0)
	for i := 0; i < 5 && longest < 2*session; i++ { // it needs a little luck: an attempt to connect must just have failed
		l := zk.NewLock(dialZooKeeper(t, server.Addr(), session), at(t), anybody)
		require.NoError(t, l.Lock())
		server.Kill()
		begin := time.Now()
		require.Error(t, l.Unlock())
		longest = max(longest, time.Since(begin))
		server.Restart()
	}
	assert.Greater(t, longest, 2*session)
}

// Of locks of other languages a script in adapters/repro shows what the suite sees with luck alone.
// In it there is the library, and nothing of ours.
func TestRepro_kazoo_isAcquiredStays(t *testing.T) {
	cmd := command(t, nil, "/usr/bin/python3", "repro/kazoo_stays.py", pythonPackages+"/kazoo")()
	assert.Equal(t, "is_acquired\n", printed(t, cmd, testserver.SharedZooKeeper(t).Addr()))
}

func TestRepro_npmEtcd3_doesNotTellOfALoss(t *testing.T) {
	cmd := command(t, nil, "node", "repro/etcd3_loss.js", nodePackages+"/etcd3")()
	assert.Equal(t, "both hold\n", printed(t, cmd, testserver.SharedEtcd(t).Addr()))
}

// printed returns what a script prints, which has to end well.
func printed(t *testing.T, cmd *exec.Cmd, address string) string {
	t.Helper()
	cmd.Env = append(cmd.Env, "LOCKER_ADDRESS="+address)
	defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

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
	nodes[2].Stop()
	calls := []<-chan error{
		testwait.Go(func() error { _, err := toUnlock.Unlock(); return err }),
		testwait.Go(func() error { _, err := toExtend.Extend(); return err }),
		testwait.Go(redsync.New(pools...).NewMutex("c", redsync.WithExpiry(expiry)).Lock),
	}
	time.Sleep(3 * time.Second)
	for _, call := range calls {
		assert.Empty(t, call, "it has returned")
	}
	nodes[2].Continue()
	for _, call := range calls {
		_ = patience.Result(t, call)
	}
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

func redislockAt(t *testing.T, addr string) *redislock.Client {
	t.Helper()
	c := redislock.New(dialRedis(t, addr))
	l, err := c.Obtain(t.Context(), "warm", time.Minute, nil) // there is a connection, and the scripts are known
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	return c
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

// rueidislockAt has the settings of the package's own documentation for one server, and those of
// adjust.
func rueidislockAt(t *testing.T, addr string, adjust func(*rueidislock.LockerOption)) rueidislock.Locker {
	t.Helper()
	o := rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:  1, NoLoopTracking: true, TryNextAfter: time.Second,
	}
	if adjust != nil {
		adjust(&o)
	}
	l, err := rueidislock.NewLocker(o)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// waitFor calls WithContext.
func waitFor(ctx context.Context, l rueidislock.Locker, name string) <-chan error {
	return testwait.Go(func() error {
		_, _, err := l.WithContext(ctx, name)
		return err
	})
}

const keyOfA = "rueidislock:0:a"

func TestRepro_rueidislock_swallowsErrorsWhileWaiting(t *testing.T) {
	server := startRedis(t)
	l := rueidislockAt(t, server.Addr(), nil)
	require.NoError(t, server.direct.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, _, err := l.TryWithContext(t.Context(), "a")
	require.ErrorContains(t, err, "OOM")
	ctx := testwait.Context(t, soon)
	_, _, err = l.WithContext(ctx, "a")
	assert.Equal(t, context.DeadlineExceeded, err)
}

// It needs luck: up to ten thousand rounds. So eight locks are passed back and forth side by side.
func TestRepro_rueidislock_missesAnUnlock(t *testing.T) {
	server := startRedis(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	missed := make(chan int, 8)
	var all sync.WaitGroup
	for range cap(missed) {
		name := strconv.Itoa(rand.Int())
		holder, waiter := rueidislockAt(t, server.Addr(), nil), rueidislockAt(t, server.Addr(), nil)
		all.Go(func() {
			missed <- passBackAndForth(ctx, server, name, holder, waiter)
			cancel()
		})
	}
	all.Wait()
	close(missed)
	most := 0
	for round := range missed {
		most = max(most, round)
	}
	require.Positive(t, most, "no unlock was missed in two minutes")
	t.Logf("round %d: two seconds after the release the waiter has no lock", most)
}

// passBackAndForth returns the round in which the waiter has missed the unlock, or 0 if none was
// missed until ctx ended.
func passBackAndForth(ctx context.Context, server redisNode, name string, holder, waiter rueidislock.Locker) int {
	_, release, err := holder.WithContext(ctx, name)
	for round := 1; err == nil; round++ {
		var next context.CancelFunc
		locked := testwait.Go(func() (err error) {
			_, next, err = waiter.WithContext(ctx, name)
			return err
		})
		time.Sleep(rand.N(2 * time.Millisecond))
		release()
		select {
		case err = <-locked:
		case <-time.After(2 * time.Second):
			held, err := server.direct.Exists(ctx, "rueidislock:0:"+name).Result()
			if err == nil && held == 0 {
				return round
			}
			return 0
		}
		release = next
		holder, waiter = waiter, holder
	}
	return 0
}

func TestRepro_rueidislock_renewsWithoutEnd(t *testing.T) {
	server := startRedis(t)
	l := rueidislockAt(t, server.Addr(), func(o *rueidislock.LockerOption) {
		*o = rueidislock.LockerOption{ClientOption: o.ClientOption} // all else as by default
	})
	_, release, err := l.WithContext(t.Context(), "a")
	require.NoError(t, err)
	defer release()
	// Renewals of three keys are due every 2.5 s.
	patience.Until(t, "the hold is renewed a thousand times", func() bool { return server.calls(t, "evalsha") > 1000 })
}

func TestRepro_rueidislock_overrunAttemptWaitsForAFreeLock(t *testing.T) {
	server, proxy := startProxied(t)
	l := rueidislockAt(t, proxy.Addr(), func(o *rueidislock.LockerOption) { o.TryNextAfter = 0 }) // 20 ms
	patience.Until(t, "the scripts are known", func() bool {
		_, release, err := l.TryWithContext(t.Context(), "warm")
		if err == nil {
			release()
		}
		return err == nil
	})
	server.forget(t)
	proxy.Delay(50 * time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	locked := waitFor(ctx, l, "a")
	patience.Until(t, "the attempt was undone", func() bool { return server.calls(t, "del") == 1 })
	proxy.Delay(0)
	pending(t, "WithContext", locked, 10*soon) // hundred times what an attempt may take
	assert.False(t, server.has(t, keyOfA), "somebody holds the lock")
	cancel()
	require.ErrorIs(t, patience.Result(t, locked), context.Canceled)
}
