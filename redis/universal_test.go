package redis_test

import (
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redis"
)

var oddNames = []string{
	"{}", "}", "{", "}{", "{a}b", "{a}c", "a{b}", "a", "a ", " a", "A", "%7D", "%", "%25", "%257D", "%7d", "{}}", "{{}}",
	"a\x00", "a\x00b", "a\n", "a\r\nb", "a/", "a//", "/a", "a:b", ":", "*", "?", "[a]", "\\", "\"", "'", "\u00e9", "e\u0301", "\u0430",
	"\U0001F512", "{\U0001F512}", strings.Repeat("x", 4096), strings.Repeat("x", 4095) + "}", strings.Repeat("}", 4096),
}

// All of these ask servers of the same kinds, and leave the client open, which is the
// application's.
func TestUniversal(t *testing.T) {
	t.Parallel()
	s1, s2 := testserver.Redis(t), testserver.Redis(t)
	ring := testwait.Closed(goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"one": s1.Addr(), "two": s2.Addr()}}), nil)(t)
	cluster := connectCluster(t, testserver.Cluster(t, testserver.RedisReplicas(0)))
	for kind, rdb := range map[string]goredis.UniversalClient{"Client": connect(t, testserver.Redis(t).Addr()), "Ring": ring, "ClusterClient": cluster} {
		t.Run(kind+", every name", func(t *testing.T) { everyName(t, rdb) })
		t.Run(kind+", tells what its servers may break", func(t *testing.T) { warnsOf(t, rdb) })
		t.Run(kind+", waits", func(t *testing.T) { waitsOn(t, rdb, kind) })
	}
}

// warnsOf has no key by which a client of several servers could find one.
func warnsOf(t *testing.T, rdb goredis.UniversalClient) {
	t.Helper()
	warnings, err := clientOf(t, rdb).Warnings(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "appendonly is no")
}

// everyName extends all names at once, as the core does when renewals are due: they go to all
// nodes.
func everyName(t *testing.T, rdb goredis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	d := driverOf(t, rdb)
	var held []driver.Claim
	for _, name := range oddNames {
		held = append(held, take(t, d, "locker:"+name, time.Minute))
	}
	assert.ElementsMatch(t, oddNames, listed(t, clientOf(t, rdb), ""), "List asks all servers")
	for i, err := range d.ExtendAll(ctx, held, 2*time.Minute) {
		name := "locker:" + oddNames[i]
		require.NoError(t, err, "%q", name)
		assert.Greater(t, rdb.PTTL(ctx, script.Key(name)).Val()-keep, time.Minute, "%q", name)
		_, err = claims.Take(ctx, d, driver.Request{Name: name, TTL: time.Minute})
		require.ErrorIs(t, err, locker.ErrHeld, "%q", name)
	}
	for i, l := range held {
		require.NoError(t, l.Release(ctx), "%q", oddNames[i])
	}
}

func waitsOn(t *testing.T, rdb goredis.UniversalClient, kind string) {
	t.Helper()
	ctx := t.Context()
	c := clientOf(t, rdb)
	want := locker.LevelYes
	if kind == "Ring" {
		want = locker.LevelNo
	}
	assert.Equal(t, want, c.Guarantees()[locker.Woken].Level)
	m, other := c.Mutex("x"), c.Mutex("x")
	require.NoError(t, m.Lock(ctx))
	waiting := async(func() error { return other.Lock(ctx) })
	eventually(t, "it waits", func() bool { return rdb.ZCard(ctx, keyOf("x")+":queue").Val() == 1 })
	require.NoError(t, m.Unlock(ctx))
	require.NoError(t, await(t, waiting))
	require.NoError(t, other.Unlock(ctx))
}

// wrapped is a client that an application passes by value, which is no pointer.
type wrapped struct{ goredis.UniversalClient }

// One client alone cannot reach a shard. Its ring then maps the shard's names to another one, where
// they are free.
func TestRing_withAShardThatOneClientCannotReachTwoHold(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	one, two := testserver.Redis(t), testserver.Redis(t)
	p := testserver.NewProxy(t, one.Addr())
	ring := func(addrs ...string) *goredis.Ring {
		return testwait.Closed(goredis.NewRing(&goredis.RingOptions{
			Addrs: map[string]string{"one": addrs[0], "two": addrs[1]}, HeartbeatFrequency: 50 * time.Millisecond, DialerRetries: 1, MaxRetries: -1,
		}), nil)(t)
	}
	whole, cut := ring(one.Addr(), two.Addr()), ring(p.Addr(), two.Addr())
	first := clientOf(t, whole, locker.WithTTL(time.Minute)).Mutex("x")
	require.NoError(t, first.Lock(ctx))
	if connect(t, two.Addr()).Exists(ctx, keyOf("x")).Val() == 1 { // its shard is the other
		p = testserver.NewProxy(t, two.Addr())
		cut = ring(one.Addr(), p.Addr())
	}
	second := clientOf(t, cut, locker.WithTTL(time.Minute)).Mutex("x")
	require.ErrorIs(t, second.TryLock(ctx), locker.ErrHeld)
	p.Sever()
	eventually(t, "the ring of one client does without the shard", func() bool { return cut.Len() == 1 })
	require.NoError(t, second.TryLock(ctx))
	require.NoError(t, first.Extend(ctx))
	require.NoError(t, second.Extend(ctx), "both hold")

	d := driverOf(t, whole)
	for _, g := range []locker.Guarantee{
		locker.Exclusive, locker.Failover, locker.Fencing, locker.FencingDurable, locker.Ordered, locker.Woken,
	} {
		assert.Equal(t, locker.LevelNo, d.Guarantees()[g].Level, g)
		assert.NotEmpty(t, d.Guarantees()[g].Condition, g)
		_, err := redis.New(whole, locker.Require(g))
		require.ErrorIs(t, err, locker.ErrUnsupported, g)
	}
}

func TestNew_nilClients(t *testing.T) {
	t.Parallel()
	var client *goredis.Client
	var cluster *goredis.ClusterClient
	var ring *goredis.Ring
	for name, rdb := range map[string]goredis.UniversalClient{
		"nil": nil, "*Client": client, "*ClusterClient": cluster, "*Ring": ring,
	} {
		c, err := redis.New(rdb)
		require.ErrorContains(t, err, "nil redis client", name)
		assert.Nil(t, c, name)
		d, err := redis.NewDriver(rdb)
		require.Error(t, err, name)
		assert.Nil(t, d, name)
	}
}
