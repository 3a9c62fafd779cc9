package redis_test

import (
	"context"
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
		URL: s.URL() + "?renew=false", TTL: time.Second,
		Left: true, Since: true, LastToken: true, TokenWhenWaited: true, Queue: true, IDs: true,
		TellsHolder: true, TellsMetadata: true,
		Contents:  func(t testing.TB) string { return contents(t, connect(t, s.Addr())) },
		Listening: harness.RedisListening(s),
		Stop:      func() func() { s.Stop(); return s.Continue },
		Kill:      s.Kill,
	})
}

// contents are the keys of a server, with what is in them and, but for queues, which are looked at,
// when they expire.
func contents(t testing.TB, rdb *goredis.Client) string {
	t.Helper()
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, "*").Result()
	require.NoError(t, err)
	slices.Sort(keys)
	var all strings.Builder
	for _, key := range keys {
		content, err := rdb.Dump(ctx, key).Result()
		require.NoError(t, err)
		var expiry int64
		if !strings.HasSuffix(key, ":queue") && !before7(t, rdb) {
			expiry, err = rdb.Do(ctx, "PEXPIRETIME", key).Int64()
			require.NoError(t, err)
		}
		fmt.Fprintf(&all, "%q %q %d\n", key, content, expiry)
	}
	return all.String()
}

func TestInspect_withFewRights(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(
		userWith("lock", rights), userWith("look", []string{"evalsha", "eval", "hmget", "pttl", "zrange"}),
		userWith("none", []string{"evalsha", "eval", "hmget"})))
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
}

// A key that is not a lock is an error, and a queue that is none keeps nobody from seeing the holder.
func TestInspect_ofWhatIsNoLock(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	c := clientOf(t, rdb)
	require.NoError(t, rdb.Set(t.Context(), keyOf("text"), "x", 0).Err())
	_, err := c.Inspect(t.Context(), "text")
	wantOwnError(t, err, "WRONGTYPE")
	require.NoError(t, rdb.HSet(t.Context(), keyOf("hash"), "token", "many").Err())
	_, err = c.Inspect(t.Context(), "hash")
	require.ErrorContains(t, err, "unexpected reply to the inspect script")

	require.NoError(t, c.Mutex("queue").Lock(t.Context()))
	require.NoError(t, rdb.Set(t.Context(), keyOf("queue")+":queue", "x", 0).Err())
	state, err := c.Inspect(t.Context(), "queue")
	require.NoError(t, err)
	assert.True(t, state.Held)
	assert.Empty(t, state.Waiters)
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	harness.Abandon(t, testserver.SharedRedis(t).URL()+"?prefix="+harness.Space(t), time.Second)
}
