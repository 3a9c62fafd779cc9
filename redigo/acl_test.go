package redigo_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

// rights is what docs/backends/redis.md says that a user needs to lock.
var rights = []string{"eval", "evalsha", "time", "hmget", "hget", "hset", "hdel", "pttl", "pexpire"}

// As a line of configuration has it.
var (
	toLock = " ~{locker:* +" + strings.Join(rights, " +")
	toWait = toLock + " &{locker:* +subscribe +unsubscribe +ping +publish +pubsub +zadd +zcard +zrange +zrem +zscore +zpopmin"
)

const secret = "s3cr3t-Passw0rd"

func TestACL_theDocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(
		"user lock on >"+secret+toLock, "user wait on >"+secret+toWait+" +select",
		"user polls on >"+secret+toWait+" -subscribe", "user other on >"+secret+" ~other +@all"))
	ctx := t.Context()
	url := func(user, rest string) string { return "redigo://" + user + ":" + secret + "@" + s.Addr() + rest }

	c := openClient(t, url("lock", "?ttl=3s"))
	m := c.Mutex("x")
	for range 2 {
		require.NoError(t, m.Lock(ctx))
		require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld)
		renewed := m.Deadline().Add(500 * time.Millisecond)
		eventually(t, "it is renewed", func() bool { return m.Deadline().After(renewed) })
		require.NoError(t, m.Unlock(ctx))
	}

	for name, url := range map[string]string{"wait": url("wait", "/2"), "polls": url("polls", "")} {
		c := openClient(t, url)
		m, other := c.Mutex(name), c.Mutex(name)
		require.NoError(t, m.Lock(ctx))
		done := async(func() error { return other.Lock(withTimeout(t, patient)) })
		if name == "wait" {
			eventually(t, "the waiter is subscribed", func() bool { return listening(t, s) == 1 })
		} else {
			time.Sleep(300 * time.Millisecond)
			require.Zero(t, listening(t, s))
		}
		require.NoError(t, m.Unlock(ctx))
		require.NoError(t, await(t, done), name)
		require.NoError(t, c.Close())
	}

	err := openClient(t, url("other", "")).Mutex("x").Lock(ctx)
	var refusal redis.Error
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "NOPERM")
	assert.NotErrorIs(t, err, locker.ErrHeld)
}

func TestACL_whoMayNotLockAllNames(t *testing.T) {
	t.Parallel()
	harness.RedisSomeNames(t, "redigo", rights)
}
