package redis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	harness.Inspect(t, harness.Inspection{
		URL: s.URL(), TTL: time.Second,
		Left: true, Since: true, LastToken: true, TokenWhenWaited: true, Queue: true, IDs: true,
		TellsHolder: true, TellsMetadata: true,
		Contents:  func(testing.TB) string { return contents(s) },
		Listening: harness.RedisListening(s),
		Stop:      func() func() { s.Stop(); return s.Continue },
		Kill:      s.Kill,
	})
}

// contents are the keys of a server, with what is in them and, but for queues, which are looked at,
// when they expire.
func contents(s *testserver.RedisServer) string {
	var all []string
	for _, each := range s.Do("KEYS", "*").([]any) {
		key, expiry := each.(string), any(0)
		if !strings.HasSuffix(key, ":queue") && s.HasShardChannels() { // as long as PEXPIRETIME
			expiry = s.Do("PEXPIRETIME", key)
		}
		all = append(all, fmt.Sprintf("%q %q %d", key, s.Do("DUMP", key), expiry))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// A user who may hold locks needs the right to SCAN to list them, which shows the names of all
// keys, and nothing else to end a hold.
func TestOperator_withFewRights(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(
		userWith("lock", rights), userWith("look", []string{"evalsha", "eval", "hmget", "pttl", "zrange"}),
		userWith("none", []string{"evalsha", "eval", "hmget"}), userWith("list", append(slices.Clone(rights), "scan"))))
	direct := connect(t, s.Addr())
	m := clientOf(t, direct, locker.WithMetadata("host 7")).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, direct.ZAdd(t.Context(), keyOf("x")+":queue", goredis.Z{Score: 1, Member: "-process/first"}).Err())
	for user, waiters := range map[string]int{"look": 1, "lock": 0} {
		state, err := clientOf(t, connect(t, s.Addr(), as(user))).Inspect(t.Context(), "x")
		require.NoError(t, err, user)
		assert.Equal(t, "host 7", state.Holder.Metadata, user)
		assert.Equal(t, m.FencingToken(), state.Token, user)
		assert.Len(t, state.Waiters, waiters, user)
	}
	_, err := clientOf(t, connect(t, s.Addr(), as("none"))).Inspect(t.Context(), "x")
	wantNoPerm(t, err)
	_, err = clientOf(t, connect(t, s.Addr(), as("look")), locker.WithPrefix("other")).Inspect(t.Context(), "x")
	wantOwnError(t, err, "NOPERM")

	operator := clientOf(t, connect(t, s.Addr(), as("lock")))
	for _, err := range operator.List(t.Context(), "") {
		require.ErrorContains(t, err, "NOPERM")
	}
	assert.Equal(t, []string{"x"}, listed(t, clientOf(t, connect(t, s.Addr(), as("list"))), ""))
	state, err := operator.Inspect(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, operator.ForceRelease(t.Context(), "x", state))
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	harness.Abandon(t, testserver.SharedRedis(t).URL()+"?prefix="+harness.Space(t), time.Second)
}

// listed returns the names that are held, sorted.
func listed(t *testing.T, c *locker.Client, prefix string) (names []string) {
	t.Helper()
	for name, err := range c.List(t.Context(), prefix) {
		require.NoError(t, err)
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Keys of others do not make a request longer, and no request goes through many of them.
func TestList_amongManyKeysOfOthers(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	const others = 5000
	pipe := rdb.Pipeline()
	for i := range others {
		pipe.Set(t.Context(), fmt.Sprint("others:", i), "x", 0)
	}
	pipe.Set(t.Context(), "{locker:no lock}", "text", 0)
	pipe.HSet(t.Context(), "{other:lock}", "owner", "x")
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	c := clientOf(t, rdb, locker.WithTTL(time.Minute))
	for _, name := range []string{"a", "b"} {
		require.NoError(t, c.Mutex(name).Lock(t.Context()))
	}
	s.Do("CONFIG", "RESETSTAT")
	assert.Equal(t, []string{"a", "b"}, listed(t, c, ""))
	calls := s.Calls()
	assert.InDelta(t, others/250, calls["scan"], 10, "a request goes through some 250 keys")
	assert.LessOrEqual(t, calls["evalsha"]+calls["eval"], 6, "and looks at what may be locks")
}

// With an eviction policy, a server out of memory removes keys of held locks. The holder notices.
func TestEviction_losesHeldLocks(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig("maxmemory 3mb", "maxmemory-policy allkeys-lru"))
	ctx, rdb := t.Context(), connect(t, s.Addr())
	assert.Contains(t, clientOf(t, rdb).Guarantees()[locker.Exclusive].Condition, "evict")
	c := clientOf(t, rdb, locker.WithTTL(time.Hour), locker.WithoutRenewal())
	var held []*locker.Mutex
	for i := range 20 {
		held = append(held, c.Mutex(fmt.Sprint(i)))
		require.NoError(t, held[i].Lock(ctx))
	}
	fill := strings.Repeat("x", 10_000)
	for i := range 1000 {
		require.NoError(t, rdb.Set(ctx, fmt.Sprint("fill", i), fill, 0).Err())
	}
	lost := 0
	for _, m := range held {
		if m.Extend(ctx) != nil {
			<-m.Hold().Lost()
			lost++
		}
	}
	assert.Positive(t, lost, "of 20 held locks")
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisPersistent(), testserver.RedisConfig("user app on >pw ~* &* +@all -info"))
	rdb := connect(t, s.Addr())
	hidden := clientOf(t, connect(t, s.Addr(), func(o *goredis.Options) { o.Username, o.Password = "app", "pw" }))
	for _, c := range []struct {
		limit, policy, appendonly string
		want                      []string
	}{
		{"0", "allkeys-lru", "yes", nil},
		{"3mb", "noeviction", "yes", nil},
		{"3mb", "allkeys-random", "yes", []string{"maxmemory-policy is allkeys-random"}},
		{"3mb", "volatile-ttl", "no", []string{"maxmemory-policy is volatile-ttl", "appendonly is no"}},
	} {
		for name, value := range map[string]string{"maxmemory": c.limit, "maxmemory-policy": c.policy, "appendonly": c.appendonly} {
			require.NoError(t, rdb.ConfigSet(t.Context(), name, value).Err())
		}
		warnings, err := clientOf(t, rdb).Warnings(t.Context())
		require.NoError(t, err)
		require.Len(t, warnings, len(c.want), "%+v", c)
		for i, want := range c.want {
			assert.Contains(t, warnings[i], want)
		}
		warnings, err = hidden.Warnings(t.Context())
		require.NoError(t, err)
		assert.Empty(t, warnings, "the server hides its settings")
	}
}

// The sentinels wait for longer than holds of the default TTL last.
func TestWarnings_ofSentinels(t *testing.T) {
	t.Parallel()
	for ms, want := range map[string]int{"12000": 0, "12001": 1} {
		s := testserver.Sentinel(t, testserver.RedisPersistent(), testserver.SentinelConfig("sentinel down-after-milliseconds testmaster "+ms))
		warnings, err := openURL(t, sentinelURL(s)).Warnings(t.Context())
		require.NoError(t, err)
		require.Len(t, warnings, want)
		if want > 0 {
			assert.Contains(t, warnings[0], "down-after-milliseconds of the sentinels is "+ms)
		}
	}
}
