package redisfence_test

import (
	"context"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/redisfence"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t)
	t.Run("a token's key is on the same slot, and of one key alone", func(t *testing.T) { tokenKeys(t, connect(t, c.Addrs()[0])) })
	t.Run("keys of two slots", func(t *testing.T) {
		keysOfTwoSlots(t, testwait.Closed(goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.Addrs()}), nil)(t))
	})
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
