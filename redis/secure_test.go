package redis_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// What docs/backends/redis.md says that a user needs beside rights.
var (
	queueRights      = []string{"zadd", "zcard", "zpopmin", "zrange", "zrem", "zscore"}
	channelRights    = []string{"pubsub|numsub", "publish", "subscribe", "unsubscribe", "ping"}
	clusterRights    = []string{"cluster|slots", "asking"}
	shardedRights    = []string{"pubsub|shardnumsub", "spublish", "ssubscribe", "sunsubscribe", "ping"}
	sentinelCommands = []string{"sentinel|get-master-addr-by-name", "sentinel|sentinels", "subscribe", "ping"}
)

// waitsAndGets has a Mutex wait for another, and fails unless it is served.
func waitsAndGets(t *testing.T, a, b *locker.Mutex) {
	t.Helper()
	ctx := withTimeout(t, time.Minute)
	require.NoError(t, a.Lock(ctx))
	done := async(func() error { return b.Lock(ctx) })
	time.Sleep(50 * time.Millisecond)
	require.ErrorIs(t, b.TryLock(ctx), locker.ErrHeld)
	require.NoError(t, a.Unlock(ctx))
	require.NoError(t, awaitLong(t, done))
	require.NoError(t, b.Extend(ctx))
	require.NoError(t, b.Unlock(ctx))
}

func TestACL_waiting(t *testing.T) {
	t.Parallel()
	all := slices.Concat(rights, queueRights, channelRights)
	users := []string{
		userWith("all", all) + " &{locker:*",
		userWith("no-channels", slices.Concat(rights, queueRights)) + " resetchannels",
		userWith("no-queue", rights) + " resetchannels",
	}
	for _, r := range slices.Concat(queueRights, channelRights) {
		users = append(users, userWith("no-"+strings.ReplaceAll(r, "|", "-"), slices.DeleteFunc(slices.Clone(all), func(x string) bool { return x == r }))+" &{locker:*")
	}
	s := testserver.Redis(t, testserver.RedisConfig(users...))
	for _, line := range users {
		user := strings.Fields(line)[1]
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c := openURL(t, "redis://"+user+":"+secret+"@"+s.Addr()+"?renew=false")
			a, b := c.Mutex("x"+user), c.Mutex("x"+user)
			if user != "no-queue" && user != "no-zadd" {
				waitsAndGets(t, a, b)
				return
			}
			require.NoError(t, a.Lock(ctx))
			require.ErrorIs(t, b.TryLock(ctx), locker.ErrHeld)
			wantNoPerm(t, b.Lock(ctx))
			require.NoError(t, a.Unlock(ctx))
			require.NoError(t, b.Lock(ctx), "who need not wait")
		})
	}
}

func TestACL_cluster(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t, testserver.RedisConfig("user default off", "user admin on >"+secret+" ~* &* +@all",
		userWith("app", slices.Concat(rights, queueRights, shardedRights, clusterRights, []string{"wait"}))+" &{locker:*"))
	ways := []string{""}
	if testwait.Thorough() {
		ways = append(ways, "&replicas=1")
	}
	for _, more := range ways {
		addr := strings.Join(c.Addrs(), ",") + "?cluster=true&renew=false" + more
		a := openURL(t, "redis://app:"+secret+"@"+addr).Mutex("x")
		b := openURL(t, "redis://app:"+secret+"@"+addr).Mutex("x")
		waitsAndGets(t, a, b)
		require.NoError(t, a.Lock(t.Context()))
		move := c.StartMove(keyOf("x"), c.OtherPrimary(keyOf("x")))
		move.MoveKeys()
		require.NoError(t, a.Extend(t.Context()), "by ASK")
		move.Finish()
		require.NoError(t, a.Unlock(t.Context()))
		waitsAndGets(t, a, b)
		subscriptions := 0
		for _, s := range c.Servers() {
			channels, err := connect(t, s.Addr(), as("admin")).PubSubShardChannels(t.Context(), "*").Result()
			require.NoError(t, err)
			subscriptions += len(channels)
		}
		assert.Positive(t, subscriptions, "they listen")
		wantOwnError(t, openURL(t, "redis://app:wrong-"+secret+"@"+addr).Mutex("x").Lock(t.Context()), "WRONGPASS")
	}
}

func TestACL_sentinel(t *testing.T) {
	t.Parallel()
	g := testserver.Sentinel(t,
		testserver.RedisConfig("user default off", userWith("app", slices.Concat(rights, queueRights, channelRights, []string{"select"}))+" &{locker:*"),
		testserver.SentinelConfig("user default off", "user watcher on >hidden-"+secret+" &* +"+strings.Join(sentinelCommands, " +")))
	addr := strings.Join(g.Addrs(), ",") + "/2?renew=false&master_name=" + g.MasterName()
	watcher := "&sentinel_username=watcher&sentinel_password=hidden-" + secret
	a := openURL(t, "redis://app:"+secret+"@"+addr+watcher).Mutex("x")
	b := openURL(t, "redis://app:"+secret+"@"+addr+watcher).Mutex("x")
	waitsAndGets(t, a, b)
	old := g.Primary()
	old.Kill()
	g.WaitFailover(old)
	waitsAndGets(t, a, b)
	for _, wrong := range []string{
		"app:" + secret + "@" + addr, "app:" + secret + "@" + addr + watcher + "-wrong", "app:wrong-" + secret + "@" + addr + watcher,
	} {
		err := openURL(t, "redis://"+wrong).Mutex("x").Lock(t.Context())
		require.Error(t, err)
		require.NotErrorIs(t, err, locker.ErrHeld)
		assert.NotContains(t, err.Error(), secret)
	}
}
