package redisfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/redisfence"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t)
	t.Run("a token's key is on the same slot, and of one key alone", func(t *testing.T) { tokenKeys(t, connect(t, c.Addrs()[0])) })
	t.Run("keys of two slots", func(t *testing.T) { keysOfTwoSlots(t, connectCluster(t, c)) })
	t.Run("the token moves with its slot", func(t *testing.T) { movesWithItsSlot(t, c) })
}

// The server says which slots keys are on.
func tokenKeys(t *testing.T, rdb *goredis.Client) {
	t.Helper()
	ctx := t.Context()
	of := map[string]string{}
	for _, key := range []string{
		"x", "orders/42", "a:b", "50%", "ключ", "a b", "{", "a{b", "{x}", "{user1}:orders", "{user1}", "user1", "a{user1}b{c}d",
		"{{x}}", "{{x}", "fence:{x}", "fence:{x}:{x}", "x:{x}",
	} {
		token := redisfence.TokenKey(key)
		assert.Equal(t, rdb.ClusterKeySlot(ctx, key).Val(), rdb.ClusterKeySlot(ctx, token).Val(), "%q, and %q", key, token)
		assert.Empty(t, of[token], "%q and %q have the same token's key %q", of[token], key, token)
		of[token] = key + " has it"
	}
	for _, key := range []string{"", "}", "a}b", "{}", "{}x", "{}{x}"} {
		token := redisfence.TokenKey(key)
		assert.Empty(t, of[token], "%q and %q have the same token's key %q", of[token], key, token)
		of[token] = key + " has it"
	}
}

// A Cluster refuses keys of several slots before anything is done, and the error says what to do.
func keysOfTwoSlots(t *testing.T, rdb goredis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	err := redisfence.Set(ctx, rdb, "a}b", 1, "", 0)
	require.ErrorContains(t, err, "slot")
	require.ErrorContains(t, err, "TokenKey")
	_, err = appends.Run(ctx, rdb, "token", 1, []string{"x"}, "1")
	require.ErrorContains(t, err, "TokenKey")
	assert.Zero(t, rdb.Exists(ctx, "token").Val())

	_, err = appends.Run(ctx, rdb, "{x}token", 1, []string{"x"}, "1")
	require.NoError(t, err)
	both := redisfence.NewScript("redis.call('SET', KEYS[1], '1') redis.call('SET', KEYS[2], '2')")
	_, err = both.Run(ctx, rdb, "{x}token", 1, []string{"{x}1", "{x}2"})
	require.NoError(t, err)
}

// Slots move, and a replica takes over: the token goes with what it guards.
func movesWithItsSlot(t *testing.T, c *testserver.RedisCluster) {
	t.Helper()
	rdb := connectCluster(t, c)
	ctx := t.Context()
	const key = "moving"
	require.NoError(t, write(ctx, rdb, key, 5))
	c.MoveSlot(key, c.OtherPrimary(key))
	require.ErrorIs(t, write(ctx, rdb, key, 4), fence.ErrStale)
	require.NoError(t, write(ctx, rdb, key, 6))
	c.Failover(key)
	eventually(t, "the new primary refuses what the old one would have", func() bool {
		err := write(ctx, rdb, key, 5)
		require.Error(t, err)
		return errors.Is(err, fence.ErrStale)
	})
	assert.Equal(t, []uint64{5, 6}, seen(t, rdb, key))
}

// Eviction under volatile-lru takes what has an expiry, and the tokens have none.
func TestEviction_ofWhatExpires_sparesTheToken(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisArgs("--maxmemory-policy", "volatile-lru"))
	rdb := connect(t, s.Addr())
	ctx := t.Context()
	require.NoError(t, redisfence.Set(ctx, rdb, "x", 5, "five", time.Hour))
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	err := rdb.Set(ctx, "other", "", 0).Err()
	require.ErrorContains(t, err, "OOM", "there is nothing more to evict")
	assert.Zero(t, rdb.Exists(ctx, "x").Val(), "the value was")
	assert.Equal(t, "5", kept(t, rdb, "x"))
	err = redisfence.Set(ctx, rdb, "x", 6, "six", 0)
	require.ErrorContains(t, err, "OOM")
	assert.Equal(t, "5", kept(t, rdb, "x"), "and the token is not raised without the write")
}

// A failover loses the last writes, and their tokens with them: the resource is what it was before, and so is the fence.
func TestFailover_losesTheTokenWithTheData(t *testing.T) {
	t.Parallel()
	primary, replica := testserver.Redis(t), testserver.Redis(t)
	link := testserver.NewProxy(t, primary.Addr())
	old, young := connect(t, primary.Addr()), connect(t, replica.Addr())
	ctx := t.Context()
	host, port, _ := strings.Cut(link.Addr(), ":")
	require.NoError(t, young.ReplicaOf(ctx, host, port).Err())
	require.NoError(t, write(ctx, old, "x", 5))
	eventually(t, "the replica has it", func() bool { return kept(t, young, "x") == "5" })
	link.HoldReplies(true) // and with them what the primary tells its replica
	require.NoError(t, write(ctx, old, "x", 7))
	primary.Kill()
	require.NoError(t, young.ReplicaOf(ctx, "NO", "ONE").Err())
	require.NoError(t, write(ctx, young, "x", 6), "which was stale, and is not any more")
	require.ErrorIs(t, write(ctx, young, "x", 4), fence.ErrStale, "what had been received is not forgotten")
	assert.Equal(t, []uint64{5, 6}, seen(t, young, "x"))
}

// The rights that the documentation names are enough.
func TestRights(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(
		"user fenced on >secret ~orders/* ~fence:{orders/* -@all +eval +evalsha +get +set",
	))
	rdb := connect(t, s.Addr(), func(o *goredis.Options) { o.Username, o.Password = "fenced", "secret" })
	ctx := context.Background()
	require.NoError(t, redisfence.Set(ctx, rdb, "orders/42", 5, "paid", 0))
	require.ErrorIs(t, redisfence.Set(ctx, rdb, "orders/42", 4, "open", 0), fence.ErrStale)
	require.ErrorContains(t, redisfence.Set(ctx, rdb, "bills/42", 6, "paid", 0), "NOPERM")
}
