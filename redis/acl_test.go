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

// userWith is a line of configuration for a user of that name who may run commands.
func userWith(name string, commands []string) string {
	return fmt.Sprintf("user %s on >%s ~{locker:* +%s", name, secret, strings.Join(commands, " +"))
}

func as(user string) func(*goredis.Options) {
	return func(o *goredis.Options) { o.Username, o.Password = user, secret }
}

func TestACL_theDocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(
		userWith("app", rights), userWith("app2", append(slices.Clone(rights), "select"))))
	ctx := t.Context()
	for name, url := range map[string]string{
		"database 0": "redis://app:" + secret + "@" + s.Addr(),
		"database 2": "redis://app2:" + secret + "@" + s.Addr() + "/2",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := locker.Open(ctx, url+"?ttl=3s")
			require.NoError(t, err)
			defer func() { assert.NoError(t, c.Close()) }()
			m := c.Mutex("x")
			for range 2 {
				require.NoError(t, m.Lock(ctx))
				require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld)
				require.NoError(t, m.Extend(ctx))
				require.NoError(t, m.Unlock(ctx))
			}
			require.NoError(t, m.Lock(ctx))
			renewed := m.Deadline().Add(500 * time.Millisecond)
			eventually(t, "it is renewed", func() bool { return m.Deadline().After(renewed) })
			require.NoError(t, m.Unlock(ctx))
		})
	}
	wantOwnError(t, clientOf(t, connect(t, s.Addr(), as("app")), locker.WithPrefix("other")).Mutex("x").Lock(ctx), "NOPERM")
}

// The mark is a key that no request names; the rights to a prefix are rights to it.
func TestACL_tokensRiseThoughANameIsForgotten(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(userWith("app", rights)))
	c := clientOf(t, connect(t, s.Addr(), as("app")))
	wantTakenAbove(t, c.Mutex("x"), 1)
	above := forgetAhead(t, connect(t, s.Addr()), keyOf("x"), "{locker:%mark}")
	wantTakenAbove(t, c.Mutex("x"), above)
}

func TestACL_eachMissingRightIsItsOwnErrorAndLeavesNoLockBehind(t *testing.T) {
	t.Parallel()
	var users []string
	for _, r := range rights {
		users = append(users, userWith("no-"+r, slices.DeleteFunc(slices.Clone(rights), func(x string) bool { return x == r })))
	}
	s := testserver.Redis(t, testserver.RedisConfig(users...))
	ctx := t.Context()
	admin := connect(t, s.Addr())
	befores := []string{"never held", "released before"}
	if testwait.Thorough() {
		befores = append(befores, "expired before", "scripts not loaded")
	}
	for _, missing := range rights {
		for _, before := range befores {
			t.Run(missing+", "+before, func(t *testing.T) {
				require.NoError(t, admin.FlushAll(ctx).Err())
				loadScripts(t, admin)
				name := "locker:x"
				switch before {
				case "released before":
					require.NoError(t, take(t, driverOf(t, admin), name, time.Second).Release(ctx))
				case "expired before":
					take(t, driverOf(t, admin), name, time.Minute)
					expire(t, admin, keyOf("x"))
				case "scripts not loaded":
					require.NoError(t, admin.ScriptFlush(ctx).Err())
				}
				const ttl = time.Second
				m := clientOf(t, connect(t, s.Addr(), as("no-"+missing)), locker.WithTTL(ttl), locker.WithoutRenewal()).Mutex("x")
				err := m.Lock(ctx)
				if err == nil {
					err = errors.Join(m.Extend(ctx), m.Unlock(ctx))
				} else {
					assert.False(t, isHeldAt(t, admin, keyOf("x")), "nothing is taken by a Lock that fails")
				}
				// Extend and Unlock alone need some rights, and others are needed for an error, a flush alone.
				if err != nil {
					wantNoPerm(t, err)
				}
				assert.Equal(t, needless(missing, before), err == nil, "%v", err)
				testwait.Patience(ttl+ttl/2).Until(t, "no lock outlives its TTL", func() bool { return !isHeldAt(t, admin, keyOf("x")) })
				wantExpiry(t, admin, keyOf("x"))
				assert.NoError(t, clientOf(t, admin).Mutex("x").TryLock(ctx), "others are not locked out")
			})
		}
	}
}

// needless reports whether locking works without a right: those that serve other errors.
func needless(missing, before string) bool {
	return missing == "eval" && before != "scripts not loaded"
}

// A Redis 6 keeps the hash, empty, of a user without the right to PEXPIRE.
func wantExpiry(t *testing.T, rdb *goredis.Client, key string) {
	t.Helper()
	if before7(t, rdb) {
		return
	}
	ms, err := rdb.Do(t.Context(), "PTTL", key).Int64()
	require.NoError(t, err)
	assert.NotEqual(t, int64(-1), ms, "%s has no expiry: %v", key, rdb.HGetAll(t.Context(), key).Val())
}

// The right to undo the write is missing, too.
func TestACL_withoutTheRightsToUndo(t *testing.T) {
	t.Parallel()
	some := slices.DeleteFunc(slices.Clone(rights), func(x string) bool { return x == "pexpire" || x == "hdel" })
	s := testserver.Redis(t, testserver.RedisConfig(userWith("some", some)))
	ctx := t.Context()
	admin := connect(t, s.Addr())
	for _, before := range []string{"never held", "released before"} {
		t.Run(before, func(t *testing.T) {
			require.NoError(t, admin.FlushAll(ctx).Err())
			if before == "released before" {
				require.NoError(t, take(t, driverOf(t, admin), "locker:x", time.Minute).Release(ctx))
			}
			m := clientOf(t, connect(t, s.Addr(), as("some")), locker.WithTTL(2*time.Second)).Mutex("x")
			wantNoPerm(t, m.Lock(ctx))
			assert.False(t, isHeldAt(t, admin, keyOf("x")), "held, with expiry in %v: %v",
				admin.PTTL(ctx, keyOf("x")).Val()-keep, admin.HGetAll(ctx, keyOf("x")).Val())
			wantExpiry(t, admin, keyOf("x"))
			assert.NoError(t, clientOf(t, admin).Mutex("x").TryLock(ctx), "others are not locked out")
		})
	}
}

func TestAuth_isItsOwnError(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(
		"user default on >"+secret+"-default ~* +@all", userWith("app", rights), "user off off >"+secret+" ~* +@all"))
	for name, c := range map[string]struct{ user, want string }{
		"wrong password": {":wrong-" + secret + "@", "WRONGPASS"},
		"no password":    {"", "NOAUTH"},
		"unknown user":   {"nobody:" + secret + "@", "WRONGPASS"},
		"disabled user":  {"off:" + secret + "@", "WRONGPASS"},
		"another's":      {"app:" + secret + "-default@", "WRONGPASS"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := locker.Open(t.Context(), "redis://"+c.user+s.Addr()+"?ttl=10s")
			require.NoError(t, err)
			defer func() { assert.NoError(t, client.Close()) }()
			start := time.Now()
			err = client.Mutex("x").Lock(t.Context())
			wantOwnError(t, err, c.want)
			assert.NotContains(t, err.Error(), secret)
			assert.Less(t, time.Since(start), 5*time.Second, "at once")
		})
	}
	good, err := locker.Open(t.Context(), "redis://:"+secret+"-default@"+s.Addr())
	require.NoError(t, err)
	defer func() { assert.NoError(t, good.Close()) }()
	require.NoError(t, good.Mutex("x").Lock(t.Context()))
}

func TestACL_whoMayNotLockAllNames(t *testing.T) {
	t.Parallel()
	harness.RedisSomeNames(t, "redis", rights)
}
