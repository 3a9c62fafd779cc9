package redis_test

import (
	"errors"
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
	"github.com/go-locker/locker/internal/test/testwait"
)

// rights is what docs/backends/redis.md says that a user needs to lock.
var rights = []string{"eval", "evalsha", "time", "hmget", "hget", "hset", "hdel", "pttl", "pexpire"}

const secret = "s3cr3t-Passw0rd"

// wantNoPerm fails unless err is the server's refusal of a command. In a script versions of Redis word it differently.
func wantNoPerm(t *testing.T, err error) {
	t.Helper()
	for _, inScript := range []string{"The user executing the script can't run this command", "ERR ACL failure in script"} {
		if err != nil && strings.Contains(err.Error(), inScript) {
			wantOwnError(t, err, inScript)
			return
		}
	}
	wantOwnError(t, err, "NOPERM")
}

// wantOwnError fails unless err is the client library's, with text in it, and no news of another owner.
func wantOwnError(t *testing.T, err error, text string) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrHeld)
	require.NotErrorIs(t, err, locker.ErrLost)
	var own goredis.Error
	require.ErrorAs(t, err, &own, "%v", err)
	require.Contains(t, own.Error(), text, "%q, want %s in it", own, text)
}

// userWith is a line of configuration for a user of that name who may run commands.
func userWith(name string, commands []string) string {
	return fmt.Sprintf("user %s on >%s ~{locker:* +%s", name, secret, strings.Join(commands, " +"))
}

func as(user string) func(*goredis.Options) {
	return func(o *goredis.Options) { o.Username, o.Password = user, secret }
}

func TestACL_eachMissingRightIsItsOwnErrorAndLeavesNoLockBehind(t *testing.T) {
	t.Parallel()
	all := append(slices.Clone(rights), "pexpire-hdel") // what undoes the write is missing, too
	var users []string
	for _, r := range all {
		users = append(users, userWith("no-"+r, slices.DeleteFunc(slices.Clone(rights), func(x string) bool { return slices.Contains(strings.Split(r, "-"), x) })))
	}
	s := testserver.Redis(t, testserver.RedisConfig(users...))
	ctx := t.Context()
	admin := connect(t, s.Addr())
	befores := []string{"never held", "released before"}
	if testwait.Thorough() {
		befores = append(befores, "expired before", "scripts not loaded")
	}
	for _, missing := range all {
		for _, before := range befores {
			t.Run(missing+", "+before, func(t *testing.T) {
				require.NoError(t, admin.FlushAll(ctx).Err())
				other := take(t, driverOf(t, admin), "other", time.Minute)
				require.NoError(t, errors.Join(other.Extend(ctx, time.Minute), other.Release(ctx)), "loads the scripts")
				name := "locker:x"
				switch before {
				case "released before":
					require.NoError(t, take(t, driverOf(t, admin), name, time.Second).Release(ctx))
				case "expired before":
					take(t, driverOf(t, admin), name, time.Minute)
					require.NoError(t, admin.PExpire(ctx, keyOf("x"), keep-time.Millisecond).Err())
				case "scripts not loaded":
					require.NoError(t, admin.ScriptFlush(ctx).Err())
				}
				const ttl = time.Second
				m := clientOf(t, connect(t, s.Addr(), as("no-"+missing)), locker.WithTTL(ttl), locker.WithoutRenewal()).Mutex("x")
				err := m.Lock(ctx)
				if err == nil {
					err = errors.Join(m.Extend(ctx), m.Unlock(ctx))
				} else {
					assert.False(t, harness.RedisHeld(s, keyOf("x")), "nothing is taken by a Lock that fails")
				}
				// Extend and Unlock alone need some rights, and others are needed for an error, a flush alone.
				if err != nil {
					wantNoPerm(t, err)
				}
				assert.Equal(t, missing == "eval" && before != "scripts not loaded", err == nil, "%v", err)
				testwait.Patience(ttl+ttl/2).Until(t, "no lock outlives its TTL", func() bool { return !harness.RedisHeld(s, keyOf("x")) })
				if s.HasShardChannels() { // a Redis 6 keeps the hash, empty, of a user without the right to PEXPIRE
					assert.NotEqual(t, any(int64(-1)), s.Do("PTTL", keyOf("x")), "it has no expiry: %v", s.Do("HGETALL", keyOf("x")))
				}
				assert.NoError(t, clientOf(t, admin).Mutex("x").TryLock(ctx), "others are not locked out")
			})
		}
	}
}

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

// shares fails unless c may hold shares.
func shares(t *testing.T, c *locker.Client) {
	t.Helper()
	ctx := t.Context()
	h, err := c.RWMutex("shared").Acquire(ctx)
	require.NoError(t, err)
	require.NoError(t, h.Downgrade(ctx))
	other, err := c.RWMutex("shared").RAcquire(ctx)
	require.NoError(t, err)
	for _, share := range []*locker.Hold{h, other} {
		require.NoError(t, share.Extend(ctx))
		require.NoError(t, share.Unlock(ctx))
	}
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
				if user == "all" || user == "no-channels" {
					shares(t, c)
				}
				return
			}
			require.NoError(t, a.Lock(ctx))
			require.ErrorIs(t, b.TryLock(ctx), locker.ErrHeld)
			wantNoPerm(t, b.Lock(ctx))
			require.NoError(t, a.Unlock(ctx))
			require.NoError(t, b.Lock(ctx), "who need not wait")

			rw := c.RWMutex("rw" + user)
			_, err := rw.TryRAcquire(ctx)
			wantNoPerm(t, err)
			h, err := rw.TryAcquire(ctx)
			require.NoError(t, err, "nothing is taken")
			wantNoPerm(t, h.Downgrade(ctx))
			require.NoError(t, h.Extend(ctx), "it is what it was")
			require.NoError(t, h.Unlock(ctx))
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
