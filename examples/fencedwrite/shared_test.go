package main

import (
	"net/rpc"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// shared is a lock as the child has it, in a process of its own.
func shared(t *testing.T, childURL string, opts ...locker.Option) *locker.Mutex {
	t.Helper()
	conn, err := rpc.Dial("tcp", strings.Trim(strings.TrimPrefix(childURL, sharedScheme+"://"), "?"))
	require.NoError(t, err)
	c, err := locker.New(parent{conn}, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c.Mutex("x")
}

// What the child has is a lock like any other, or the story would be about something else.
func TestShared_isALock(t *testing.T) {
	t.Parallel()
	childURL, stop, err := serveMemory("mem://" + t.Name())
	require.NoError(t, err)
	defer stop()
	own, err := locker.Open(t.Context(), "mem://"+t.Name())
	require.NoError(t, err)
	defer own.Close()

	first, second := shared(t, childURL), shared(t, childURL)
	require.NoError(t, first.Lock(t.Context()))
	require.ErrorIs(t, second.TryLock(t.Context()), locker.ErrHeld)
	require.ErrorIs(t, own.Mutex("x").TryLock(t.Context()), locker.ErrHeld, "the parent's locks are the same")
	require.NoError(t, first.Extend(t.Context()))
	token := first.FencingToken()
	require.NoError(t, first.Unlock(t.Context()))

	short := shared(t, childURL, locker.WithTTL(50*time.Millisecond), locker.WithoutRenewal())
	require.NoError(t, short.Lock(t.Context()))
	require.NoError(t, second.Lock(t.Context()), "when the TTL is over")
	assert.Less(t, token, second.FencingToken())
	require.ErrorIs(t, short.Unlock(t.Context()), locker.ErrLost)
	require.ErrorIs(t, first.TryLock(t.Context()), locker.ErrHeld, "the late Unlock has freed nothing")
}

func TestShared_isRenewed(t *testing.T) {
	t.Parallel()
	childURL, stop, err := serveMemory("mem://" + t.Name())
	require.NoError(t, err)
	defer stop()
	m := shared(t, childURL, locker.WithTTL(ttl))
	require.NoError(t, m.Lock(t.Context()))
	granted := m.Deadline()
	patience.Until(t, "it is renewed", func() bool { return m.Deadline().After(granted.Add(ttl / 5)) })
	require.NoError(t, m.Unlock(t.Context()))
}
