package redigo_test

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// listening is how many channels of waiters are listened to.
func listening(t *testing.T, s *testserver.RedisServer) int {
	t.Helper()
	channels, err := redis.Strings(ask(t, s, "PUBSUB", "CHANNELS", "{*"), nil)
	require.NoError(t, err)
	return len(channels)
}

func TestWaiting_aPoolOfOneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := newPool(t, s.Addr(), ofOne)
	c := clientOf(t, p, locker.WithTTL(time.Minute))
	m, other := c.Mutex("x"), c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	done := async(func() error { return other.Lock(withTimeout(t, patient)) })
	eventually(t, "the waiter is subscribed", func() bool { return listening(t, s) == 1 })
	assert.Equal(t, 1, p.ActiveCount())
	require.NoError(t, m.Extend(t.Context()), "the pool has its connection")
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, await(t, done))
	assert.NoError(t, other.Unlock(t.Context()))
}
