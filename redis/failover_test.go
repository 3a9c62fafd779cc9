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
	// clients makes the application's own, with their default options.
	clients func() map[string]goredis.UniversalClient
}

var failovers = map[string]func(t testing.TB) failover{"Sentinel": sentinelFailover, "Cluster": clusterFailover}

func sentinelFailover(t testing.TB) failover {
	t.Helper()
	g := testserver.Sentinel(t)
	o := goredis.FailoverOptions{MasterName: g.MasterName(), SentinelAddrs: g.Addrs()}
	return failover{
		url:     sentinelURL(g),
		primary: func(string) *testserver.RedisServer { return g.Primary() },
		replica: func(string) *testserver.RedisServer { return g.Replica() },
		byHand:  func(string) *testserver.RedisServer { return g.Failover() },
		after:   func(_ string, old *testserver.RedisServer) *testserver.RedisServer { return g.WaitFailover(old) },
		clients: func() map[string]goredis.UniversalClient {
			one, several := o, o
			return map[string]goredis.UniversalClient{
				"NewFailoverClient":        goredis.NewFailoverClient(&one),
				"NewFailoverClusterClient": goredis.NewFailoverClusterClient(&several),
			}
		},
	}
}

func clusterFailover(t testing.TB) failover {
	t.Helper()
	c := testserver.Cluster(t)
	return failover{
		url:     clusterURL(c),
		primary: func(name string) *testserver.RedisServer { return c.PrimaryOf(keyOf(name)) },
		replica: func(name string) *testserver.RedisServer { return c.ReplicaOf(keyOf(name)) },
		byHand:  func(name string) *testserver.RedisServer { return c.Failover(keyOf(name)) },
		after: func(name string, old *testserver.RedisServer) *testserver.RedisServer {
			return c.WaitPrimary(keyOf(name), old)
		},
		clients: func() map[string]goredis.UniversalClient {
			return map[string]goredis.UniversalClient{"NewClusterClient": goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.Addrs()})}
		},
	}
}

// lasting are options of holds that do not end by themselves.
var lasting = []locker.Option{locker.WithTTL(time.Minute), locker.WithoutRenewal()}

// contenders are a Client by URL and one of each kind that the application may have.
func (f failover) contenders(t *testing.T) map[string]*locker.Client {
	t.Helper()
	all := map[string]*locker.Client{"by URL": openURL(t, f.url, lasting...)}
	for name, rdb := range f.clients() {
		t.Cleanup(func() { _ = rdb.Close() })
		all[name] = clientOf(t, rdb, lasting...)
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
		all := f.contenders(t)
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
		first := openURL(t, f.url, lasting...).Mutex("x")
		second := openURL(t, f.url, lasting...).Mutex("x")
		third := openURL(t, f.url, lasting...).Mutex("x")
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

// A partition separates a primary that was replaced, and does not know it, from the promoted
// replica. Both sides have clients, and both grant the lock: as long as the partition lasts, not
// for one TTL. Acknowledgements by a replica (WAIT) do not help if the old side has one. The tokens
// come from two clocks, so the holder on the old side may have the larger one. A resource that
// compares them still loses no write silently, but whose write it refuses depends on the clocks and
// on the order of the writes.
func TestSplitBrain_bothPrimariesGrantTheLock(t *testing.T) {
	t.Parallel()
	old, replicas := replicated(t, 2)
	ctx := t.Context()
	for _, r := range replicas {
		r.WaitSynced(old)
	}
	taken := replicas[1]
	taken.Detach() // the cut: the other replica stays with the old primary
	taken.Do("REPLICAOF", "NO", "ONE")

	here := waiting(t, connect(t, old.Addr()), 1, 2*time.Second, lasting...).Mutex("x")
	there := clientOf(t, connect(t, taken.Addr()), lasting...).Mutex("x")
	var last uint64
	for range 3 { // and again, as often as anybody likes
		require.NoError(t, there.Lock(ctx))
		require.NoError(t, here.Lock(ctx))
		assert.NotZero(t, there.FencingToken())
		assert.Greater(t, here.FencingToken(), there.FencingToken(), "the one that came last has the larger token, though its primary is none")
		assert.Greater(t, there.FencingToken(), last)
		last = here.FencingToken()
		require.NoError(t, there.Extend(ctx), "nobody is told")
		require.NoError(t, here.Extend(ctx))
		require.NoError(t, there.Unlock(ctx))
		require.NoError(t, here.Unlock(ctx))
	}
}
