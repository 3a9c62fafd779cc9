package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redis"
)

var oddNames = []string{
	"{}", "}", "{", "}{", "{a}b", "{a}c", "a{b}", "a", "a ", " a", "A", "%7D", "%", "%25", "%257D", "%7d", "{}}", "{{}}",
	"a\x00", "a\x00b", "a\n", "a\r\nb", "a/", "a//", "/a", "a:b", ":", "*", "?", "[a]", "\\", "\"", "'", "\u00e9", "e\u0301", "\u0430",
	"\U0001F512", "{\U0001F512}", strings.Repeat("x", 4096), strings.Repeat("x", 4095) + "}", strings.Repeat("}", 4096),
}

// universal are the kinds of clients that New takes.
func universal(t *testing.T) map[string]goredis.UniversalClient {
	t.Helper()
	s1, s2 := testserver.Redis(t), testserver.Redis(t)
	ring := goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"one": s1.Addr(), "two": s2.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })

	s := testserver.Redis(t, testserver.RedisArgs("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"))
	node := connect(t, s.Addr())
	require.NoError(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	eventually(t, "the cluster is ready", func() bool {
		return strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{s.Addr()}})
	t.Cleanup(func() { _ = cluster.Close() })
	return map[string]goredis.UniversalClient{"Client": connect(t, testserver.Redis(t).Addr()), "Ring": ring, "ClusterClient": cluster}
}

// All of these ask servers of the same kinds.
func TestUniversal(t *testing.T) {
	t.Parallel()
	all := universal(t)
	for kind, rdb := range all {
		t.Run(kind+", every name", func(t *testing.T) { everyName(t, rdb) })
		t.Run(kind+", renewals go to all nodes", func(t *testing.T) { extendsAllNames(t, rdb) })
		t.Run(kind+", tells what its servers may break", func(t *testing.T) { warnsOf(t, rdb) })
		t.Run(kind+", waits", func(t *testing.T) { waitsOn(t, rdb, kind) })
	}
	t.Run("all keys of a name share a slot", func(t *testing.T) { shareASlot(t, all["ClusterClient"]) })
}

// warnsOf has no key by which a client of several servers could find one.
func warnsOf(t *testing.T, rdb goredis.UniversalClient) {
	t.Helper()
	warnings, err := clientOf(t, rdb).Warnings(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "appendonly is no")
	evict := func(ctx context.Context, server *goredis.Client) error {
		return errors.Join(server.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err(), server.ConfigSet(ctx, "maxmemory", "100mb").Err())
	}
	switch c := rdb.(type) {
	case *goredis.Client:
		err = evict(t.Context(), c)
	case *goredis.Ring:
		err = c.ForEachShard(t.Context(), evict)
	case *goredis.ClusterClient:
		err = c.ForEachMaster(t.Context(), evict)
	}
	require.NoError(t, err)
	warnings, err = clientOf(t, rdb).Warnings(t.Context())
	require.NoError(t, err)
	assert.Len(t, warnings, 2)
}

func everyName(t *testing.T, rdb goredis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	c := clientOf(t, rdb, locker.WithoutRenewal())
	var held []*locker.Mutex
	for _, name := range oddNames {
		m := c.Mutex(name)
		require.NoError(t, m.Lock(ctx), "%q contends with another name", name)
		held = append(held, m)
	}
	assert.ElementsMatch(t, oddNames, listed(t, c, ""), "List asks all servers")
	for i, m := range held {
		require.ErrorIs(t, c.Mutex(oddNames[i]).TryLock(ctx), locker.ErrHeld, "%q", oddNames[i])
		require.EqualValues(t, 1, rdb.Exists(ctx, script.Key("locker:"+oddNames[i])).Val(), "%q", oddNames[i])
		require.NoError(t, m.Extend(ctx), "%q", oddNames[i])
	}
	for i, m := range held {
		require.NoError(t, m.Unlock(ctx), "%q", oddNames[i])
	}
}

// extendsAllNames does at once what the core does when renewals are due.
func extendsAllNames(t *testing.T, rdb goredis.UniversalClient) {
	t.Helper()
	d := driverOf(t, rdb)
	var held []driver.Lease
	for _, name := range oddNames {
		held = append(held, take(t, d, "extended:"+name, time.Minute))
	}
	for i, err := range d.ExtendAll(t.Context(), held, 2*time.Minute) {
		require.NoError(t, err, "%q", oddNames[i])
		left := rdb.PTTL(t.Context(), script.Key("extended:"+oddNames[i])).Val() - keep
		assert.Greater(t, left, time.Minute, "%q", oddNames[i])
	}
	for i, l := range held {
		require.NoError(t, l.Release(t.Context()), "%q", oddNames[i])
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

func shareASlot(t *testing.T, rdb goredis.UniversalClient) {
	t.Helper()
	slots := map[int64]bool{}
	for _, name := range oddNames {
		key := script.Key(name)
		slot, err := rdb.ClusterKeySlot(t.Context(), key).Result()
		require.NoError(t, err)
		for _, suffix := range []string{":queue", ":process", "}", "{x}", "\x00"} {
			assert.Equal(t, slot, rdb.ClusterKeySlot(t.Context(), key+suffix).Val(), "%q with %q", name, suffix)
		}
		assert.Equal(t, slot, rdb.ClusterKeySlot(t.Context(), script.MarkKey(name, true)).Val(), "the mark of %q", name)
		slots[slot] = true
	}
	assert.Greater(t, len(slots), len(oddNames)/2, "names spread over slots")
}

// wrapped is a client that an application passes by value.
type wrapped struct{ goredis.UniversalClient }

func TestNew_takesAClientThatIsNoPointer(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testserver.Redis(t).Addr())
	c, err := redis.New(wrapped{rdb})
	require.NoError(t, err)
	require.NoError(t, c.Mutex("x").TryLock(t.Context()))
	require.NoError(t, c.Close())
}
