package harness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// Rights tests that the user of the Clients that open makes may do all that holders, waiters and
// operators do.
func Rights(t *testing.T, open func() *locker.Client) {
	t.Helper()
	c := open()
	m, next := c.Mutex("x"), open().Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	locked := async(func() error { return next.Lock(t.Context()) })
	if c.Guarantees()[locker.Ordered].Level == locker.LevelNo {
		time.Sleep(200 * time.Millisecond) // it waits, in no queue that could be seen
	} else {
		patience.Until(t, "it waits", func() bool {
			state, err := c.Inspect(t.Context(), "x")
			return err == nil && len(state.Waiters) == 1
		})
	}
	require.NoError(t, m.Extend(t.Context()))
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, patience.Result(t, locked))
	state, err := c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	var names []string
	for name, err := range c.List(t.Context(), "") {
		require.NoError(t, err)
		names = append(names, name)
	}
	assert.Equal(t, []string{"x"}, names)
	require.NoError(t, c.ForceRelease(t.Context(), "x", state))
	require.NoError(t, m.TryLock(t.Context()), "it is free: whoever held it does not stand in the queue")
	require.ErrorIs(t, next.Unlock(t.Context()), locker.ErrLost)
}
