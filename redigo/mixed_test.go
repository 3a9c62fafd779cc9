package redigo_test

import (
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	overgoredis "github.com/go-locker/locker/redis"
)

// Programs over redigo and over go-redis wait in one queue, and the release of each wakes the next,
// whose library is the other.
func TestMixed_bothLibrariesWaitInOneQueue(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	other, err := overgoredis.New(rdb, locker.WithTTL(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	clients := []*locker.Client{clientOf(t, newPool(t, s.Addr()), locker.WithTTL(time.Minute)), other}
	waiters := func() int {
		n, err := redis.Int(ask(t, s, "ZCARD", keyOf("x")+":queue"), nil)
		require.NoError(t, err)
		return n
	}

	listed, holder := 0, clients[1].Mutex("x")
	require.NoError(t, holder.Lock(t.Context()))
	require.ErrorIs(t, clients[0].Mutex("x").TryLock(t.Context()), locker.ErrHeld)
	for name, err := range clients[0].List(t.Context(), "") {
		require.NoError(t, err)
		assert.Equal(t, "x", name)
		state, err := clients[0].Inspect(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, holder.FencingToken(), state.Token)
		listed++
	}
	assert.Equal(t, 1, listed)
	const n = 6
	var (
		mu     sync.Mutex
		tokens = []uint64{holder.FencingToken()}
		done   []<-chan error
	)
	for i := range n {
		m := clients[i%2].Mutex("x")
		done = append(done, async(func() error {
			if err := m.Lock(withTimeout(t, patient)); err != nil {
				return err
			}
			mu.Lock()
			tokens = append(tokens, m.FencingToken())
			mu.Unlock()
			return m.Unlock(t.Context())
		}))
		eventually(t, "it waits", func() bool { return waiters() == i+1 })
	}
	eventually(t, "both listen", func() bool { return listening(t, s) == 2 })
	require.NoError(t, holder.Unlock(t.Context()))
	for _, d := range done {
		require.NoError(t, await(t, d))
	}
	assert.IsIncreasing(t, tokens)
	require.NoError(t, clients[0].Mutex("x").TryLock(t.Context()), "afterwards")
}
