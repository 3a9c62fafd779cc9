package redis_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// listed returns the names that are held, sorted.
func listed(t *testing.T, c *locker.Client, prefix string) (names []string) {
	t.Helper()
	for name, err := range c.List(t.Context(), prefix) {
		require.NoError(t, err)
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Keys of others do not make a request longer, and no request goes through many of them.
func TestList_amongManyKeysOfOthers(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	const others = 5000
	pipe := rdb.Pipeline()
	for i := range others {
		pipe.Set(t.Context(), fmt.Sprint("others:", i), "x", 0)
	}
	pipe.Set(t.Context(), "{locker:no lock}", "text", 0)
	pipe.HSet(t.Context(), "{other:lock}", "owner", "x")
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	c := clientOf(t, rdb, locker.WithTTL(time.Minute))
	for _, name := range []string{"a", "b"} {
		require.NoError(t, c.Mutex(name).Lock(t.Context()))
	}
	waiting := async(func() error { return c.Mutex("a").Lock(t.Context()) })
	eventually(t, "it is in the queue", func() bool {
		state, err := c.Inspect(t.Context(), "a")
		return err == nil && len(state.Waiters) == 1
	})
	resetStats(t, rdb)
	assert.Equal(t, []string{"a", "b"}, listed(t, c, ""))
	calls := commandCalls(t, rdb)
	assert.InDelta(t, others/250, calls["scan"], 10, "a request goes through some 250 keys")
	assert.LessOrEqual(t, calls["evalsha"]+calls["eval"], 6, "and looks at what may be locks")
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-waiting, locker.ErrClosed)
}

func TestList_ofACluster(t *testing.T) {
	t.Parallel()
	c := openURL(t, clusterURL(testserver.Cluster(t)), locker.WithTTL(time.Minute))
	var want []string
	for i := range 30 { // on each of the primaries there are some
		name := fmt.Sprint("a/", i)
		require.NoError(t, c.Mutex(name).Lock(t.Context()))
		want = append(want, name)
	}
	slices.Sort(want)
	assert.Equal(t, want, listed(t, c, ""))
	assert.Len(t, listed(t, c, "a/7"), 1)
}

// A user who may hold locks needs the right to SCAN, which shows the names of all keys, and nothing else to end a hold.
func TestOperator_withFewRights(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(userWith("lock", rights), userWith("operate", append(slices.Clone(rights), "scan"))))
	holder, operator := clientOf(t, connect(t, s.Addr(), as("lock"))), clientOf(t, connect(t, s.Addr(), as("operate")))
	m := holder.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	for _, err := range holder.List(t.Context(), "") {
		require.ErrorContains(t, err, "NOPERM")
	}
	assert.Equal(t, []string{"x"}, listed(t, operator, ""))
	state, err := holder.Inspect(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, holder.ForceRelease(t.Context(), "x", state))
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
}
