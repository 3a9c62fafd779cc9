package thirdparty

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// Tests called TestRepro_ show one finding each, by the library's own API on a real server: of those that no scenario of
// the suite shows each time. They pass as long as the finding is there: one that fails after an update has found a repair,
// and its finding has to go.

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

// Of locks of other languages a script in adapters/repro shows what the suite sees with luck alone. In it there is the
// library, and nothing of ours.
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
