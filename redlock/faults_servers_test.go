package redlock_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/redigo"
)

// Odd names do not collide, and what people look at is there at every node, also at one that has joined later.
func TestFaults_namesAndMetadata(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 4)
	c := unhurriedClient(t, q.addrs(), locker.WithMetadata("host 7, \"pid\" 1\r\n"), locker.WithoutRenewal())
	var held []*locker.Mutex
	names := []string{"a", "a}", "{a}", "a%7D", "a b\r\n*1", "\x00", strings.Repeat("long/", 1000), "ключ", ":queue"}
	joined := func(m *locker.Mutex) {
		eventually(t, "all have it", func() bool {
			require.NoError(t, m.Extend(t.Context()))
			return slices.Equal(q.heldAt(t, m.Name()), all(4, true))
		})
	}
	q.servers[3].Kill()
	for _, name := range names {
		m := c.Mutex(name)
		require.NoError(t, m.Lock(t.Context()), "%q", name)
		require.ErrorIs(t, c.Mutex(name).TryLock(t.Context()), locker.ErrHeld, "%q", name)
		held = append(held, m)
	}
	q.servers[3].Restart()
	joined(held[0])
	for _, rdb := range q.direct {
		assert.Equal(t, "host 7, \"pid\" 1\r\n", rdb.HGet(t.Context(), key("a"), "meta").Val())
	}
	for i, m := range held {
		require.NoError(t, m.Unlock(t.Context()), "%q", names[i])
	}
	q.eventuallyFree(t, "a", 0, 1, 2, 3)
}

// Each vote is in the message, and no secret is.
func TestFaults_errorsKeepSecrets(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-Passw0rd"
	q := newQuorum(t, 3)
	for _, rdb := range q.direct[:2] {
		require.NoError(t, rdb.ConfigSet(t.Context(), "requirepass", "another").Err())
	}
	for _, scheme := range []string{"redis", "redigo"} {
		c, err := locker.Open(t.Context(), "redlock://:"+secret+"@"+strings.Join(q.addrs(), ",")+"?driver="+scheme)
		require.NoError(t, err)
		err = c.Mutex("x").TryLock(t.Context())
		require.Error(t, err)
		for _, addr := range q.addrs() {
			assert.Contains(t, err.Error(), addr)
		}
		assert.Contains(t, err.Error(), "WRONGPASS")
		assert.NotContains(t, err.Error(), secret)
		require.NoError(t, c.Close())
	}
}
