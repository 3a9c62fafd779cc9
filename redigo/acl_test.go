package redigo_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/testserver"
)

// What the package's documentation says that a user needs.
const (
	toLock = " ~{locker:* +eval +evalsha +time +hmget +hget +hset +hdel +pttl +pexpire"
	toWait = toLock + " &{locker:* +subscribe +unsubscribe +ping +publish +pubsub +zadd +zcard +zrange +zrem +zscore +zpopmin"
	secret = "s3cr3t-Passw0rd"
)

func TestACL_theDocumentedRightsAreEnough(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisConfig(
		"user lock on >"+secret+toLock, "user wait on >"+secret+toWait+" +select",
		"user deaf on >"+secret+toWait+" -subscribe", "user other on >"+secret+" ~other +@all"))
	ctx := t.Context()
	url := func(user, rest string) string { return "redigo://" + user + ":" + secret + "@" + s.Addr() + rest }

	c := openClient(t, url("lock", "?ttl=200ms"))
	m := c.Mutex("x")
	for range 2 {
		require.NoError(t, m.Lock(ctx))
		require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld)
		renewed := m.Deadline().Add(100 * time.Millisecond)
		eventually(t, "it is renewed", func() bool { return m.Deadline().After(renewed) })
		require.NoError(t, m.Unlock(ctx))
	}

	for name, url := range map[string]string{"wait": url("wait", "/2"), "deaf": url("deaf", "")} {
		c := openClient(t, url)
		m, other := c.Mutex(name), c.Mutex(name)
		require.NoError(t, m.Lock(ctx))
		done := async(func() error { return other.Lock(withTimeout(t, patient)) })
		if name == "wait" {
			eventually(t, "the waiter listens", func() bool { return listening(t, s) == 1 })
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

// A user who may lock some names gets those, and the refusal for others alone, whoever shares the trip.
func TestACL_whoMayNotLockAllNames(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisConfig(strings.Replace("user some on >"+secret+toLock, "{locker:", "{locker:mine-", 1)))
	c := openClient(t, "redigo://some:"+secret+"@"+s.Addr())
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			mine, other := c.Mutex(fmt.Sprint("mine-", i)), c.Mutex(fmt.Sprint("other-", i))
			for range 5 {
				if err := mine.Lock(t.Context()); !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, mine.Unlock(t.Context()))
				if i%5 == 0 {
					assert.ErrorContains(t, other.TryLock(t.Context()), "NOPERM")
				}
			}
		})
	}
	all.Wait()
}
