package redis_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redis"
)

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
	c, err := locker.New(d, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
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
	admin := connect(t, primary.Addr())
	var sent roundTrips
	rdb := connect(t, primary.Addr())
	rdb.AddHook(&sent)
	loadScripts(t, admin)
	c := waiting(t, rdb, 2, time.Second, locker.WithoutRenewal())
	warm(t, c)
	m, other := c.Mutex("x"), c.Mutex("x")
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
		resetStats(t, admin)
		before := sent.commands.Load() + sent.pipelines.Load()
		require.ErrorIs(t, step.do(), step.want, step.name)
		calls := commandCalls(t, admin)
		assert.Equal(t, 1, calls["evalsha"], step.name)
		assert.Equal(t, step.waits, calls["wait"], step.name)
		assert.EqualValues(t, 1, sent.commands.Load()+sent.pipelines.Load()-before, "%s: round trips", step.name)
	}
	d := driverOf(t, rdb, redis.WaitReplicas(2, time.Second))
	leases := make([]driver.Lease, 20)
	for i := range leases {
		leases[i] = take(t, d, fmt.Sprint(i), time.Minute)
	}
	resetStats(t, admin)
	for _, err := range d.ExtendAll(ctx, leases, 2*time.Minute) {
		require.NoError(t, err)
	}
	assert.Equal(t, 1, commandCalls(t, admin)["wait"], "one for all that is extended together")
	lease, err := claims.Propose(ctx, d, driver.Request{Name: "proposed", TTL: time.Minute}, 7)
	require.NoError(t, err)
	resetStats(t, admin)
	require.NoError(t, lease.Raise(ctx, lease.Token()+1))
	assert.Equal(t, 1, commandCalls(t, admin)["wait"], "of a raise")
}
