package redis_test

import (
	"errors"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/test/testserver"
)

// failover is a topology that makes another server the primary of a name.
type failover struct {
	url     string
	primary func(name string) *testserver.RedisServer
	replica func(name string) *testserver.RedisServer
	byHand  func(name string) *testserver.RedisServer // in good order
	// after returns who has taken over from old, which does not answer.
	after func(name string, old *testserver.RedisServer) *testserver.RedisServer
	// clients are the application's own, with their default options.
	clients map[string]func() goredis.UniversalClient
}

var failovers = map[string]func(t testing.TB, opts ...testserver.RedisOption) failover{
	"Sentinel": sentinelFailover,
	"Cluster":  clusterFailover,
}

func sentinelFailover(t testing.TB, opts ...testserver.RedisOption) failover {
	t.Helper()
	g := testserver.Sentinel(t, opts...)
	o := func() *goredis.FailoverOptions {
		return &goredis.FailoverOptions{MasterName: g.MasterName(), SentinelAddrs: g.Addrs()}
	}
	return failover{
		url:     sentinelURL(g),
		primary: func(string) *testserver.RedisServer { return g.Primary() },
		replica: func(string) *testserver.RedisServer { return g.Replica() },
		byHand:  func(string) *testserver.RedisServer { return g.Failover() },
		after:   func(_ string, old *testserver.RedisServer) *testserver.RedisServer { return g.WaitFailover(old) },
		clients: map[string]func() goredis.UniversalClient{
			"NewFailoverClient":        func() goredis.UniversalClient { return goredis.NewFailoverClient(o()) },
			"NewFailoverClusterClient": func() goredis.UniversalClient { return goredis.NewFailoverClusterClient(o()) },
		},
	}
}

func clusterFailover(t testing.TB, opts ...testserver.RedisOption) failover {
	t.Helper()
	c := testserver.Cluster(t, opts...)
	return failover{
		url:     clusterURL(c),
		primary: func(name string) *testserver.RedisServer { return c.PrimaryOf(keyOf(name)) },
		replica: func(name string) *testserver.RedisServer { return c.ReplicaOf(keyOf(name)) },
		byHand:  func(name string) *testserver.RedisServer { return c.Failover(keyOf(name)) },
		after: func(name string, old *testserver.RedisServer) *testserver.RedisServer {
			return c.WaitPrimary(keyOf(name), old)
		},
		clients: map[string]func() goredis.UniversalClient{
			"NewClusterClient": func() goredis.UniversalClient {
				return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.Addrs()})
			},
		},
	}
}

// contenders are a Client by URL and one of each kind that the application may have, without renewal.
func (f failover) contenders(t *testing.T, ttl time.Duration) map[string]*locker.Client {
	t.Helper()
	all := map[string]*locker.Client{"by URL": openURL(t, f.url, locker.WithTTL(ttl), locker.WithoutRenewal())}
	for name, connect := range f.clients {
		rdb := connect()
		t.Cleanup(func() { _ = rdb.Close() })
		all[name] = clientOf(t, rdb, locker.WithTTL(ttl), locker.WithoutRenewal())
	}
	return all
}

func eachFailover(t *testing.T, f func(t *testing.T, f failover)) {
	t.Helper()
	for name, start := range failovers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, start(t))
		})
	}
}

// inStep waits until the replica of a name has all that its primary has.
func (f failover) inStep(name string) {
	f.replica(name).WaitSynced(f.primary(name))
}

func TestFailover_aHoldThatTheReplicaKnowsGoesOn(t *testing.T) {
	t.Parallel()
	eachFailover(t, func(t *testing.T, f failover) {
		t.Helper()
		ctx := t.Context()
		all := f.contenders(t, time.Minute)
		held := map[string]*locker.Mutex{}
		tokens := map[string]uint64{}
		for kind, c := range all {
			held[kind] = c.Mutex("{x}" + kind)
		}
		check := func(when string) {
			for kind, m := range held {
				before := m.Hold().Deadline()
				var err error
				eventually(t, when+", "+kind+": it is extended", func() bool {
					err = m.Extend(ctx)
					require.NotErrorIs(t, err, locker.ErrLost, "%s, %s", when, kind)
					return err == nil
				})
				assert.True(t, m.Hold().Deadline().After(before))
				assert.Equal(t, tokens[kind], m.FencingToken())
				for other, c := range all {
					eventually(t, when+", "+kind+": another is told that it is held", func() bool {
						err := c.Mutex(m.Name()).TryLock(ctx)
						require.Error(t, err, "%s: %s has taken what %s holds", when, other, kind)
						return errors.Is(err, locker.ErrHeld)
					})
				}
			}
		}
		for kind, m := range held {
			require.NoError(t, m.Lock(ctx))
			tokens[kind] = m.FencingToken()
		}
		f.inStep("{x}")
		f.byHand("{x}")
		check("by hand")
		f.inStep("{x}")
		old := f.primary("{x}")
		old.Kill()
		f.after("{x}", old)
		check("by death")
		for kind, m := range held {
			require.NoError(t, m.Unlock(ctx))
			require.NoError(t, m.Lock(ctx))
			assert.Greater(t, m.FencingToken(), tokens[kind])
			require.NoError(t, m.Unlock(ctx))
		}
	})
}

// What is lost is lost as documented: the replica had not received the take when it took over.
func TestFailover_aHoldThatTheReplicaDoesNotKnowIsLost(t *testing.T) {
	t.Parallel()
	eachFailover(t, func(t *testing.T, f failover) {
		t.Helper()
		ctx := t.Context()
		first := openURL(t, f.url, locker.WithTTL(time.Minute), locker.WithoutRenewal()).Mutex("x")
		second := openURL(t, f.url, locker.WithTTL(time.Minute), locker.WithoutRenewal()).Mutex("x")
		third := openURL(t, f.url, locker.WithTTL(time.Minute), locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, second.Lock(ctx), "the replica knows this token")
		earlier := second.FencingToken()
		require.NoError(t, second.Unlock(ctx))
		f.inStep("x")
		f.replica("x").Detach()

		require.NoError(t, first.Lock(ctx))
		old := f.primary("x")
		old.Kill()
		f.after("x", old)
		eventually(t, "the second takes what the first holds", func() bool { return second.TryLock(ctx) == nil })

		assert.NotZero(t, first.FencingToken(), "the first believes that it holds the lock")
		assert.Greater(t, first.FencingToken(), earlier)
		assert.Greater(t, second.FencingToken(), first.FencingToken(), "a resource can tell who is the later one")
		var err error
		eventually(t, "the first is told", func() bool {
			err = first.Extend(ctx)
			require.Error(t, err)
			return errors.Is(err, locker.ErrLost)
		})
		<-first.Hold().Lost()
		require.ErrorIs(t, first.Unlock(ctx), locker.ErrLost)
		require.NoError(t, second.Extend(ctx), "the second is not disturbed")
		require.ErrorIs(t, third.TryLock(ctx), locker.ErrHeld)
		require.NoError(t, second.Unlock(ctx))
	})
}

func TestAddress_isEmptyForSeveralServers(t *testing.T) {
	t.Parallel()
	for _, rdb := range []goredis.UniversalClient{
		goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"localhost:1"}}),
		goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"localhost:1"}}),
	} {
		assert.Empty(t, driverOf(t, rdb).(quorum.Node).Address())
		require.NoError(t, rdb.Close())
	}
	assert.Equal(t, "localhost:1", driverOf(t, connect(t, "localhost:1")).(quorum.Node).Address())
}
