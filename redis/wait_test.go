package redis_test

import (
	"context"
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
	"github.com/go-locker/locker/internal/test/testwait"
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

func TestWaitReplicas_aTakeThatTooFewAcknowledgeFailsAndIsReleased(t *testing.T) {
	t.Parallel()
	primary, replicas := replicated(t, 2)
	replicas[1].Detach()
	admin := connect(t, primary.Addr())
	for name, kind := range clients {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			rdb := connect(t, primary.Addr(), kind)
			require.NoError(t, waiting(t, rdb, 1, time.Second).Mutex("y").Lock(ctx), "one is enough")

			m := waiting(t, rdb, 2, 50*time.Millisecond).Mutex("x")
			for _, lock := range []func(context.Context) error{m.Lock, m.TryLock} {
				err := lock(ctx)
				require.ErrorContains(t, err, "1 of 2 replicas have acknowledged within 50ms")
				require.NotErrorIs(t, err, locker.ErrHeld)
				assert.Zero(t, m.FencingToken())
				testwait.Patience(5*time.Second).Until(t, "what it took is released, long before the TTL is over", func() bool {
					return !isHeldAt(t, admin, keyOf("x"))
				})
			}
			require.NoError(t, clientOf(t, rdb).Mutex("x").TryLock(ctx), "others take it")
		})
		require.NoError(t, admin.FlushAll(t.Context()).Err())
	}
}

func TestWaitReplicas_anExtendThatTooFewAcknowledgeFailsAndTheOldDeadlineStands(t *testing.T) {
	t.Parallel()
	primary, replicas := replicated(t, 1)
	ctx := t.Context()
	rdb := connect(t, primary.Addr())
	d := driverOf(t, rdb, redis.WaitReplicas(1, 50*time.Millisecond))
	c, err := locker.New(d, locker.WithTTL(time.Minute), locker.WithoutRenewal())
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	m := c.Mutex("x")
	require.NoError(t, m.Lock(ctx))
	batch := []driver.Lease{take(t, d, "1", time.Minute), take(t, d, "2", time.Minute)}
	proposed, err := claims.Propose(ctx, d, driver.Request{Name: "proposed", TTL: time.Minute}, 7)
	require.NoError(t, err)

	replicas[0].Detach()
	token, deadline, validity := m.FencingToken(), m.Hold().Deadline(), batch[0].Validity()
	err = m.Extend(ctx)
	require.ErrorContains(t, err, "0 of 1 replicas have acknowledged within 50ms")
	require.NotErrorIs(t, err, locker.ErrLost)
	assert.Equal(t, deadline, m.Hold().Deadline())
	assert.Equal(t, token, m.FencingToken(), "it is held")
	for _, err := range d.ExtendAll(ctx, batch, time.Minute) {
		require.ErrorContains(t, err, "0 of 1 replicas")
	}
	assert.LessOrEqual(t, batch[0].Validity(), validity)
	accepted := proposed.Token()
	require.ErrorContains(t, proposed.Raise(ctx, accepted+1), "0 of 1 replicas")
	assert.Equal(t, accepted, proposed.Token())

	replicas[0].Reattach()
	replicas[0].WaitSynced(primary)
	eventually(t, "it is extended when the replica is back", func() bool { return m.Extend(ctx) == nil })
	assert.True(t, m.Hold().Deadline().After(deadline))
	for i, err := range d.ExtendAll(ctx, batch, 2*time.Minute) {
		require.NoError(t, err)
		assert.Greater(t, batch[i].Validity(), time.Minute)
	}
	require.NoError(t, proposed.Raise(ctx, proposed.Token()+1))
	require.NoError(t, m.Unlock(ctx))
}

// The one who waits gets the lock when a replica is back, and not before.
func TestWaitReplicas_ofAWaiter(t *testing.T) {
	t.Parallel()
	primary, replicas := replicated(t, 1)
	ctx := t.Context()
	rdb := connect(t, primary.Addr())
	holder := clientOf(t, rdb).Mutex("x")
	require.NoError(t, holder.Lock(ctx))
	m := waiting(t, rdb, 1, 50*time.Millisecond, locker.WithTTL(20*time.Second)).Mutex("x")
	done := async(func() error { return m.Lock(ctx) })
	eventually(t, "it waits", func() bool { return rdb.ZCard(ctx, keyOf("x")+":queue").Val() == 1 })
	replicas[0].Detach()
	resetStats(t, rdb)
	require.NoError(t, holder.Unlock(ctx))
	eventually(t, "it was granted, and not acknowledged, more than once", func() bool { return commandCalls(t, rdb)["wait"] > 2 })
	select {
	case err := <-done:
		t.Fatalf("Lock has returned: %v", err)
	default:
	}
	replicas[0].Reattach()
	require.NoError(t, await(t, done))
	assert.NotZero(t, m.FencingToken())
	require.NoError(t, m.Unlock(ctx))
}

func TestWaitReplicas_byURL(t *testing.T) {
	t.Parallel()
	primary, replicas := replicated(t, 1)
	c := openURL(t, primary.URL()+"?replicas=1&replica_timeout=50ms")
	require.NoError(t, c.Mutex("x").Lock(t.Context()))
	replicas[0].Detach()
	require.ErrorContains(t, c.Mutex("y").TryLock(t.Context()), "0 of 1 replicas have acknowledged within 50ms")
	_, err := locker.Open(t.Context(), primary.URL()+"?replicas=1&replica_timeout=1s&read_timeout=1s")
	require.ErrorContains(t, err, "ReadTimeout, 1s")
}
