package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestList_printsWhatIsHeld(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	o := locked(t, "list", s.URL())
	require.Zero(t, o.code, o.stderr)
	assert.Empty(t, o.stdout)
	c, err := locker.Open(t.Context(), s.URL())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
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
	c, err := locker.Open(t.Context(), s.URL(), locker.WithMetadata("job \x1b[2J"))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	release := func(hold string) outcome { return locked(t, "release", "--force", "--hold", hold, s.URL(), "name") }
	o := release("7")
	assert.Equal(t, exitLost, o.code, o.stderr)
	assert.Contains(t, o.stderr, "nobody holds name: nothing was ended")
	for _, by := range []string{"token", "ID"} {
		m := c.Mutex("name")
		require.NoError(t, m.Lock(deadline(t)))
		i := inspected(t, s.URL(), "name")
		o := release("0")
		assert.Equal(t, exitHeld, o.code, o.stderr)
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
	c, err := locker.Open(t.Context(), s.URL(), locker.WithMetadata("report"))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	readers := []*locker.RWMutex{c.RWMutex("name"), c.RWMutex("name"), c.RWMutex("name")}
	for _, r := range readers {
		require.NoError(t, r.RLock(deadline(t)))
	}
	before := inspected(t, s.URL(), "name")
	require.Len(t, before.Readers, 3)
	o := locked(t, "release", "--force", "--hold", before.Readers[0].ID, s.URL(), "name")
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, before.Readers[0].ID)
	assert.NotContains(t, o.stdout, before.Readers[1].ID)
	assert.ElementsMatch(t, before.Readers[1:], inspected(t, s.URL(), "name").Readers)

	o = locked(t, "release", "--force", "--hold", "0", s.URL(), "name")
	assert.Equal(t, exitHeld, o.code, o.stderr)
	assert.Contains(t, o.stderr, before.Readers[2].ID)

	o = locked(t, "release", "--force", "--hold", strconv.FormatUint(before.Token, 10), s.URL(), "name")
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, before.Readers[1].ID)
	for _, r := range readers {
		require.ErrorIs(t, r.Unlock(deadline(t)), locker.ErrLost)
	}
	assert.False(t, inspected(t, s.URL(), "name").Held)
}

func TestOperate_usageAndOutages(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Kill()
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"list"}, exitUsage},
		{[]string{"list", "mem://x", "a", "b"}, exitUsage},
		{[]string{"list", "mem://x", "\xff"}, exitUsage},
		{[]string{"list", "mem://x", "redis://u:secret@h"}, exitUsage},
		{[]string{"list", "--output", "xml", "mem://x"}, exitUsage},
		{[]string{"list", s.URL()}, exitUnreachable},
		{[]string{"list", "mem://x"}, 0},
		{[]string{"release", "mem://x", "name"}, exitUsage},
		{[]string{"release", "--hold", "7", "mem://x", "name"}, exitUsage},
		{[]string{"release", "--force", "mem://x", "name"}, exitUsage},
		{[]string{"release", "--force", "--hold", "7", "mem://x"}, exitUsage},
		{[]string{"release", "--force", "--hold", "7", "mem://x", ""}, exitUsage},
		{[]string{"release", "--force", "--hold", "7", "mem://x", "redis://u:secret@h"}, exitUsage},
		{[]string{"release", "--force", "--hold", "7", s.URL(), "name"}, exitUnreachable},
		{[]string{"release", "--force", "--hold", "7", "mem://x", "name"}, exitLost},
	} {
		o := locked(t, c.args...)
		assert.Equal(t, c.code, o.code, "%q: %s", c.args, o.stderr)
		assert.NotContains(t, o.stderr, "secret")
	}
}
