package main

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func inspected(t *testing.T, url, name string) inspection {
	t.Helper()
	o := locked(t, "inspect", "--output", "json", url, name)
	require.Zero(t, o.code, o.stderr)
	var i inspection
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &i))
	return i
}

func TestInspect_showsHolderAndWaiters(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	free := inspected(t, s.URL(), "name")
	assert.False(t, free.Held)
	assert.Nil(t, free.Holder)
	assert.Empty(t, free.Waiters)

	c, err := locker.Open(t.Context(), s.URL(), locker.WithMetadata("job \x1b[2J"))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	m := c.Mutex("name")
	require.NoError(t, m.Lock(deadline(t)))
	waiter := begin(t, "run", s.URL(), "name", "--", "echo", "ran")
	var i inspection
	patience.Until(t, "somebody waits", func() bool {
		i = inspected(t, s.URL(), "name")
		return len(i.Waiters) == 1
	})
	assert.True(t, i.Held)
	assert.Equal(t, "job \x1b[2J", i.Holder.Metadata)
	assert.Equal(t, m.FencingToken(), i.Token)
	assert.InDelta(t, 20, i.LeftSeconds, 11)

	o := locked(t, "inspect", s.URL(), "name")
	require.Zero(t, o.code)
	assert.Contains(t, o.stdout, `"job \x1b[2J"`, "nothing that a terminal would obey")
	assert.Contains(t, o.stdout, "waiter 1")
	assert.Contains(t, o.stdout, "expires")

	token := m.FencingToken()
	require.NoError(t, m.Unlock(deadline(t)))
	require.Zero(t, waiter.wait(), waiter.stderr)
	assert.Greater(t, inspected(t, s.URL(), "name").Token, token, "the last one")
	assert.Contains(t, locked(t, "inspect", s.URL(), "name").stdout, "nobody")
}

func TestInspect_showsReaders(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	c, err := locker.Open(t.Context(), s.URL())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	m := c.RWMutex("x")
	require.NoError(t, m.RDo(t.Context(), func(ctx context.Context, _ *locker.Hold) error {
		require.NoError(t, m.RLock(t.Context()))
		o := locked(t, "inspect", s.URL(), "x")
		require.Zero(t, o.code, o.stderr)
		assert.Contains(t, o.stdout, "reader 1")
		assert.Contains(t, o.stdout, "reader 2")
		assert.NotContains(t, o.stdout, "held by")
		o = locked(t, "inspect", "-o", "json", s.URL(), "x")
		assert.Contains(t, o.stdout, `"readers"`)
		return m.Unlock(ctx)
	}))
}

func TestInspect_usageAndOutages(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Kill()
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"mem://x"}, exitUsage},
		{[]string{"mem://x", ""}, exitUsage},
		{[]string{"gopher://x", "name"}, exitUsage},
		{[]string{"--output", "xml", "mem://x", "name"}, exitUsage},
		{[]string{s.URL(), "name"}, exitUnreachable},
		{[]string{"mem://x", "name"}, 0},
	} {
		o := locked(t, append([]string{"inspect"}, c.args...)...)
		assert.Equal(t, c.code, o.code, "%q: %s", c.args, o.stderr)
	}
}
