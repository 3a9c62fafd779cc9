package thirdparty

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/go-locker/locker/internal/test/testserver"
)

// sessionAt has a client of its own, and lasts a minute.
func sessionAt(t *testing.T, addr string) *concurrency.Session {
	t.Helper()
	return openSession(t, dialEtcd(t, addr), time.Minute)
}

func TestRepro_concurrencyMutex_twoOfOneSessionBothHold(t *testing.T) {
	s := sessionAt(t, testserver.SharedEtcd(t).Addr())
	require.NoError(t, concurrency.NewMutex(s, t.Name()).Lock(t.Context()))
	assert.NoError(t, concurrency.NewMutex(s, t.Name()).Lock(t.Context()))
}

func TestRepro_concurrencyMutex_interruptedLockDoesNotSayHeld(t *testing.T) {
	server := testserver.SharedEtcd(t)
	require.NoError(t, concurrency.NewMutex(sessionAt(t, server.Addr()), t.Name()).Lock(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := concurrency.NewMutex(sessionAt(t, server.Addr()), t.Name()).Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NotErrorIs(t, err, concurrency.ErrLocked)
}

func TestRepro_concurrencyMutex_unlockAfterTheLeaseIsGone(t *testing.T) {
	server := testserver.SharedEtcd(t)
	s := sessionAt(t, server.Addr())
	m := concurrency.NewMutex(s, t.Name())
	require.NoError(t, m.Lock(t.Context()))
	_, err := s.Client().Revoke(t.Context(), s.Lease())
	require.NoError(t, err)
	other := concurrency.NewMutex(sessionAt(t, server.Addr()), t.Name())
	require.NoError(t, other.Lock(t.Context()))
	assert.Less(t, m.Header().Revision, other.Header().Revision)
	assert.NoError(t, m.Unlock(t.Context()), "though it had lost the lock")
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

func TestRepro_concurrencyMutex_takesAnyName(t *testing.T) {
	s := sessionAt(t, testserver.SharedEtcd(t).Addr())
	for _, name := range []string{"", "\xff"} {
		assert.NoError(t, concurrency.NewMutex(s, name).TryLock(t.Context()), "%q", name)
	}
}

func TestRepro_concurrencyMutex_callsOutlastTheLease(t *testing.T) {
	server := testserver.Etcd(t)
	s := openSession(t, dialEtcd(t, server.Addr()), time.Second)
	m := concurrency.NewMutex(s, "a")
	require.NoError(t, m.Lock(t.Context()))
	server.Stop()
	unlocked := start(func() error { return m.Unlock(t.Context()) })
	tried := start(func() error { return concurrency.NewMutex(s, "b").TryLock(t.Context()) })
	kept := start(func() error { _, err := s.Client().KeepAliveOnce(t.Context(), s.Lease()); return err })
	pending(t, "Unlock", unlocked, 3*time.Second)
	pending(t, "TryLock", tried, 0)
	pending(t, "KeepAliveOnce", kept, 0)
	server.Continue()
	for call, done := range map[string]<-chan error{"Unlock": unlocked, "TryLock": tried, "KeepAliveOnce": kept} {
		_ = result(t, call, done)
	}
}

func TestRepro_concurrencyMutex_namesNest(t *testing.T) {
	server := testserver.SharedEtcd(t)
	require.NoError(t, concurrency.NewMutex(sessionAt(t, server.Addr()), "orders/42").Lock(t.Context()))
	err := concurrency.NewMutex(sessionAt(t, server.Addr()), "orders").TryLock(t.Context())
	assert.ErrorIs(t, err, concurrency.ErrLocked)
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
	locked := start(func() error { return m.Lock(ctx) })
	await(t, "the Txn is applied", func() bool { return keys(t, other.Client(), t.Name()) == 1 })
	cancel()
	require.Error(t, result(t, "Lock", locked))
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
	unlocked := start(func() error { return older.Unlock(ctx) })
	await(t, "the release is applied", func() bool { return keys(t, other.Client(), t.Name()) == 0 })
	cancel()
	require.Error(t, result(t, "Unlock", unlocked))
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
	locked := start(func() error { return concurrency.NewMutex(waiter, "a").Lock(ctx) })
	await(t, "two are in the queue", func() bool { return keys(t, waiter.Client(), "a") == 2 })
	pending(t, "Lock", locked, soon)
	server.Stop()
	cancel()
	pending(t, "Lock", locked, 2*time.Second)
	server.Continue()
	require.ErrorIs(t, result(t, "Lock", locked), context.Canceled)
}
