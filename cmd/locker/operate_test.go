package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/show"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
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

	c := testwait.Closed(locker.Open(t.Context(), s.URL(), locker.WithMetadata("job \x1b[2J")))(t)
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
	assert.Contains(t, i.Waiters[0].Metadata, fmt.Sprintf("pid %d", waiter.cmd.Process.Pid))

	ctx, cancel := context.WithCancel(t.Context())
	own := testwait.Go(func() error { return c.Mutex("name").Lock(ctx) })
	patience.Until(t, "the holder's Client waits, too", func() bool {
		i = inspected(t, s.URL(), "name")
		return len(i.Waiters) == 2
	})
	assert.Equal(t, []bool{false, true}, []bool{i.Waiters[0].OfHolders, i.Waiters[1].OfHolders})
	state, err := c.Inspect(deadline(t), "name")
	require.NoError(t, err)
	assert.Equal(t, "2 (1 at the holder's Client)", show.Waiters(state))
	o := locked(t, "inspect", s.URL(), "name")
	require.Zero(t, o.code)
	assert.Contains(t, o.stdout, `"job \x1b[2J"`, "nothing that a terminal would obey")
	assert.Regexp(t, `waiter 2 +"job .*, the Client that holds it`, o.stdout)
	assert.Contains(t, o.stdout, "expires")
	cancel()
	require.ErrorIs(t, <-own, context.Canceled)

	token := m.FencingToken()
	require.NoError(t, m.Unlock(deadline(t)))
	require.Zero(t, waiter.wait(), waiter.stderr)
	assert.Greater(t, inspected(t, s.URL(), "name").Token, token, "the last one")
	assert.Contains(t, locked(t, "inspect", s.URL(), "name").stdout, "nobody")
}

func TestList_printsWhatIsHeld(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	o := locked(t, "list", s.URL())
	require.Zero(t, o.code, o.stderr)
	assert.Empty(t, o.stdout)
	c := testwait.Closed(locker.Open(t.Context(), s.URL()))(t)
	for _, name := range []string{"backup", "orders/42", "orders/\x1b[2J"} {
		require.NoError(t, c.Mutex(name).Lock(deadline(t)))
	}
	lines := func(args ...string) []string {
		o := locked(t, append([]string{"list"}, args...)...)
		require.Zero(t, o.code, o.stderr)
		return slices.Sorted(slices.Values(strings.Split(strings.TrimSpace(o.stdout), "\n")))
	}
	assert.Equal(t, []string{`"orders/\x1b[2J"`, "backup", "orders/42"}, lines(s.URL()), "nothing that a terminal would obey")
	assert.Equal(t, []string{`"orders/\x1b[2J"`, "orders/42"}, lines(s.URL(), "orders/"))
	assert.Equal(t, []string{""}, lines(s.URL()+"?prefix=other"))
	var names []string
	for _, line := range lines("-o", "json", s.URL(), "orders/") {
		var one struct{ Name string }
		require.NoError(t, json.Unmarshal([]byte(line), &one))
		names = append(names, one.Name)
	}
	assert.Equal(t, []string{"orders/42", "orders/\x1b[2J"}, names)
}

// An operator ends what he has seen, and nothing else.
func TestRelease_endsTheHoldThatItIsTold(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	c := testwait.Closed(locker.Open(t.Context(), s.URL(), locker.WithMetadata("job \x1b[2J")))(t)
	release := func(hold string) result { return locked(t, "release", "--force", "--hold", hold, s.URL(), "name") }
	o := release("7")
	assert.Equal(t, outcome.Lost, o.code, o.stderr)
	assert.Contains(t, o.stderr, "nobody holds name: nothing was ended")
	for _, by := range []string{"token", "ID"} {
		m := c.Mutex("name")
		require.NoError(t, m.Lock(deadline(t)))
		i := inspected(t, s.URL(), "name")
		o := release("0")
		assert.Equal(t, outcome.Held, o.code, o.stderr)
		assert.Contains(t, o.stderr, `the present hold is not that of --hold: it is of "job \x1b[2J"`)
		assert.Contains(t, o.stderr, "token "+strconv.FormatUint(i.Token, 10))
		require.NoError(t, m.Extend(deadline(t)))
		o = release(map[string]string{"token": strconv.FormatUint(i.Token, 10), "ID": i.Holder.ID}[by])
		require.Zero(t, o.code, o.stderr)
		assert.Equal(t, `ended the hold of "job \x1b[2J" (`+i.Holder.ID+`), token `+strconv.FormatUint(i.Token, 10)+"\n", o.stdout)
		require.ErrorIs(t, m.Unlock(deadline(t)), locker.ErrLost)
	}
}

// Of several readers an ID is one, and the token is all.
func TestRelease_endsReaders(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	c := testwait.Closed(locker.Open(t.Context(), s.URL(), locker.WithMetadata("report")))(t)
	readers := []*locker.RWMutex{c.RWMutex("name"), c.RWMutex("name"), c.RWMutex("name")}
	for _, r := range readers {
		require.NoError(t, r.RLock(deadline(t)))
	}
	before := inspected(t, s.URL(), "name")
	require.Len(t, before.Readers, 3)
	o := locked(t, "inspect", s.URL(), "name")
	assert.Contains(t, o.stdout, "reader 3")
	assert.NotContains(t, o.stdout, "held by")
	o = locked(t, "release", "--force", "--hold", before.Readers[0].ID, s.URL(), "name")
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, before.Readers[0].ID)
	assert.NotContains(t, o.stdout, before.Readers[1].ID)
	assert.ElementsMatch(t, before.Readers[1:], inspected(t, s.URL(), "name").Readers)

	o = locked(t, "release", "--force", "--hold", "0", s.URL(), "name")
	assert.Equal(t, outcome.Held, o.code, o.stderr)
	assert.Contains(t, o.stderr, before.Readers[2].ID)

	o = locked(t, "release", "--force", "--hold", strconv.FormatUint(before.Token, 10), s.URL(), "name")
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, before.Readers[1].ID)
	for _, r := range readers {
		require.ErrorIs(t, r.Unlock(deadline(t)), locker.ErrLost)
	}
	assert.False(t, inspected(t, s.URL(), "name").Held)
}
