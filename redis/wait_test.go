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
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redis"

	"github.com/go-locker/locker/internal/test/testwait"
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
