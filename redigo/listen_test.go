package redigo_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
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

func TestWaiting_aSubscriptionThatIsCutIsRestored(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := newPool(t, "", func(p *redis.Pool) {
		p.DialContext = nil
		p.Dial = func() (redis.Conn, error) { return redis.Dial("tcp", s.Addr()) }
	})
	c := clientOf(t, p, locker.WithTTL(time.Minute))
	m, other := c.Mutex("x"), c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	done := async(func() error { return other.Lock(withTimeout(t, patient)) })
	for range 3 {
		eventually(t, "the waiter is subscribed", func() bool { return listening(t, s) == 1 })
		n, err := redis.Int(ask(t, s, "CLIENT", "KILL", "TYPE", "pubsub"), nil)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	eventually(t, "the waiter is subscribed again", func() bool { return listening(t, s) == 1 })
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, await(t, done))
	assert.NoError(t, other.Unlock(t.Context()))
}

// A heartbeat keeps a connection on which nothing happens; a channel that nobody waits for is left.
func TestWaiting_forLong(t *testing.T) {
	testwait.OnlyNightly(t, "TestHub_givesUpAfterUse shows it of the protocol in virtual time; this takes 16 s")
	t.Parallel()
	s := testserver.Redis(t)
	c := clientOf(t, newPool(t, s.Addr()), locker.WithTTL(time.Minute))
	m, short := c.Mutex("x"), c.Mutex("y")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, short.Lock(t.Context()))
	done := async(func() error { return c.Mutex("x").Lock(withTimeout(t, time.Minute)) })
	soon := async(func() error { return c.Mutex("y").Lock(withTimeout(t, time.Minute)) })
	eventually(t, "both listen", func() bool { return listening(t, s) == 2 })
	connection := func() string {
		list, err := redis.String(ask(t, s, "CLIENT", "LIST", "TYPE", "pubsub"), nil)
		require.NoError(t, err)
		id, _, _ := strings.Cut(list, " ")
		return id
	}
	start, id := time.Now(), connection()
	require.NoError(t, short.Unlock(t.Context()))
	require.NoError(t, await(t, soon))
	eventually(t, "one channel is left", func() bool { return listening(t, s) == 1 })
	time.Sleep(time.Until(start.Add(16 * time.Second))) // longer than a connection may be silent
	assert.Equal(t, id, connection(), "the same connection")
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, await(t, done))
}
