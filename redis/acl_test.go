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
