package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redis"
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

// replicated is a primary, and n replicas of it.
func replicated(t testing.TB, n int) (primary *testserver.RedisServer, replicas []*testserver.RedisServer) {
	t.Helper()
	primary = testserver.Redis(t)
	for range n {
		replicas = append(replicas, testserver.Redis(t, testserver.RedisReplicaOf(primary)))
	}
	return primary, replicas
}

// waiting makes a Client whose grants are acknowledged by n replicas.
func waiting(t testing.TB, rdb goredis.UniversalClient, n int, timeout time.Duration, opts ...locker.Option) *locker.Client {
	t.Helper()
	d := driverOf(t, rdb, redis.WaitReplicas(n, timeout))
	return testwait.Closed(locker.New(d, opts...))(t)
}

func TestWaitReplicas_badInputIsNamed(t *testing.T) {
	t.Parallel()
	rdb := goredis.NewClient(&goredis.Options{ReadTimeout: 2 * time.Second})
	defer func() { _ = rdb.Close() }()
	for _, c := range []struct {
		n       int
		timeout time.Duration
		want    string
	}{
		{0, time.Second, "0 replicas"},
		{-1, time.Second, "-1 replicas"},
		{1, 0, "for 0s"},
		{1, -time.Second, "for -1s"},
		{1, 1500 * time.Microsecond, "whole milliseconds"},
		{1, 2 * time.Second, "ReadTimeout, 2s"},
	} {
		d, err := redis.NewDriver(rdb, redis.WaitReplicas(c.n, c.timeout))
		require.ErrorContains(t, err, c.want)
		assert.Nil(t, d)
	}
	_, err := locker.Open(t.Context(), "redis://h1,h2?cluster=true&replicas=1&replica_timeout=2s&read_timeout=1s")
	require.ErrorContains(t, err, "ReadTimeout, 1s")
	ring := goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"one": "localhost:1"}})
	defer func() { _ = ring.Close() }()
	for _, rdb := range []goredis.UniversalClient{ring, wrapped{rdb}} {
		_, err := redis.NewDriver(rdb, redis.WaitReplicas(1, time.Second))
		require.ErrorIs(t, err, locker.ErrUnsupported)
	}
}

func TestWaitReplicas_isInTheRoundTripOfWhatGrants(t *testing.T) {
	t.Parallel()
	primary, _ := replicated(t, 2)
	ctx := t.Context()
	var sent atomic.Int64
	rdb := connect(t, primary.Addr())
	rdb.AddHook(onScript(func(context.Context) { sent.Add(1) }))
	c := waiting(t, rdb, 2, time.Second, locker.WithoutRenewal())
	m, other := c.Mutex("x"), c.Mutex("x")
	require.NoError(t, errors.Join(m.Lock(ctx), m.Extend(ctx), m.Unlock(ctx)), "loads the scripts")
	for _, step := range []struct {
		name  string
		do    func() error
		want  error
		waits int
	}{
		{"Lock", func() error { return m.Lock(ctx) }, nil, 1},
		{"TryLock of a held lock", func() error { return other.TryLock(ctx) }, locker.ErrHeld, 1},
		{"Extend", func() error { return m.Extend(ctx) }, nil, 1},
		{"Unlock", func() error { return m.Unlock(ctx) }, nil, 0},
	} {
		primary.Do("CONFIG", "RESETSTAT")
		sent.Store(0)
		require.ErrorIs(t, step.do(), step.want, step.name)
		calls := primary.Calls()
		assert.Equal(t, 1, calls["evalsha"], step.name)
		assert.Equal(t, step.waits, calls["wait"], step.name)
		assert.EqualValues(t, 1, sent.Load(), "%s: round trips", step.name)
	}
	d := driverOf(t, rdb, redis.WaitReplicas(2, time.Second))
	leases := make([]driver.Claim, 20)
	for i := range leases {
		leases[i] = take(t, d, fmt.Sprint(i), time.Minute)
	}
	primary.Do("CONFIG", "RESETSTAT")
	for _, err := range d.ExtendAll(ctx, leases, 2*time.Minute) {
		require.NoError(t, err)
	}
	assert.Equal(t, 1, primary.Calls()["wait"], "one for all that is extended together")
	lease, err := claims.Propose(ctx, d, driver.Request{Name: "proposed", TTL: time.Minute}, 7)
	require.NoError(t, err)
	require.NoError(t, lease.Raise(ctx, lease.Token()+1), "loads its script")
	primary.Do("CONFIG", "RESETSTAT")
	require.NoError(t, lease.Raise(ctx, lease.Token()+1))
	assert.Equal(t, 1, primary.Calls()["wait"], "of a raise")
}

// A reply that is lost has the request sent again, on another connection. There WAIT must not be content
// with what that connection has written before, which is nothing: Redis counts so from 7.2 on.
func TestWaitReplicas_whatIsSentTwiceIsAcknowledgedToo(t *testing.T) {
	t.Parallel()
	primary, replicas := replicated(t, 1)
	replica := replicas[0]
	ctx := t.Context()
	p := testserver.NewProxy(t, primary.Addr())
	rdb := connect(t, p.Addr(), heedingCtx)
	d := driverOf(t, rdb, redis.WaitReplicas(1, 100*time.Millisecond))
	_, err := rdb.Pipelined(ctx, func(p goredis.Pipeliner) error { return p.Ping(ctx).Err() })
	require.NoError(t, err, "sets up a connection")
	replica.WaitSynced(primary)
	require.NoError(t, take(t, d, "warm", time.Minute).Release(ctx), "loads the scripts, and brings the server's clock")
	replica.Stop() // connected still, and silent

	p.HoldReplies(true)
	var lease driver.Claim
	done := async(func() error {
		lease, err = claims.Take(ctx, d, driver.Request{Name: "x", TTL: time.Minute})
		return err
	})
	eventually(t, "the server has granted, and answered", func() bool {
		_, replies := p.Held()
		return replies > 0 && harness.RedisHeld(primary, "{x}")
	})
	p.HoldReplies(false) // of other connections
	p.ResetConns()
	require.ErrorContains(t, await(t, done), "0 of 1 replicas")
	require.NotNil(t, lease, "for the core to release")

	// And a raise to the token that it has already.
	replica.Continue()
	require.NoError(t, lease.Release(ctx))
	proposed, err := claims.Propose(ctx, d, driver.Request{Name: "y", TTL: time.Minute}, 7)
	require.NoError(t, err)
	slow := take(t, driverOf(t, rdb, redis.WaitReplicas(1, 2*time.Second)), "z", time.Minute)
	require.NoError(t, slow.Extend(ctx, time.Minute), "loads the script")
	replica.WaitSynced(primary)
	replica.Stop()
	require.ErrorContains(t, slow.Extend(withTimeout(t, time.Second), time.Minute), "0 of 1 replicas", "WAIT ends before its context does")
	require.ErrorContains(t, proposed.Raise(ctx, proposed.Token()+1), "0 of 1 replicas")
	require.ErrorContains(t, proposed.Raise(ctx, proposed.Token()+1), "0 of 1 replicas")
	replica.Continue()
}
