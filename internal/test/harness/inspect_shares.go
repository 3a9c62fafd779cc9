package harness

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// readers are shown, and those that were shown end by force: none that has joined since.
func readers(t *testing.T, b Inspection) {
	c := b.open(t)
	share := func(metadata string) *locker.RWMutex {
		m := b.open(t, locker.WithMetadata(metadata)).RWMutex("readers")
		if err := m.RLock(t.Context()); errors.Is(err, locker.ErrUnsupported) {
			t.Skip("there are no shares")
		} else {
			require.NoError(t, err)
		}
		return m
	}
	shown := []*locker.RWMutex{share("a/b~c"), share("two\nlines")}
	s := look(t, c, "readers")
	assert.Equal(t, locker.Participant{}, s.Holder)
	var metadata []string
	ids := map[string]bool{"": true}
	for _, p := range s.Shares {
		metadata = append(metadata, p.Metadata)
		assert.False(t, ids[p.ID], "each has an ID of its own")
		ids[p.ID] = true
	}
	assert.ElementsMatch(t, []string{"a/b~c", "two\nlines"}, metadata)
	joined := share("")
	require.NoError(t, c.ForceRelease(t.Context(), "readers", s))
	for _, m := range shown {
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
	}
	require.NoError(t, joined.Extend(t.Context()), "nobody has shown it")
	_ = c.ForceRelease(t.Context(), "readers", s) // again: a backend may remember that it has ended them
	require.NoError(t, joined.Unlock(t.Context()))
}

func downgraded(t *testing.T, b Inspection) {
	c := b.open(t)
	m := b.open(t, locker.WithMetadata("host 7")).RWMutex("downgraded")
	require.NoError(t, m.Lock(t.Context()))
	before := look(t, c, "downgraded")
	if err := m.Downgrade(t.Context()); errors.Is(err, locker.ErrUnsupported) {
		t.Skip("there are no shares")
	} else {
		require.NoError(t, err)
	}
	other := c.RWMutex("downgraded")
	require.NoError(t, other.RLock(t.Context()))
	s := look(t, c, "downgraded")
	require.Len(t, s.Shares, 2)
	assert.Contains(t, []string{s.Shares[0].Metadata, s.Shares[1].Metadata}, "host 7")
	if err := c.ForceRelease(t.Context(), "downgraded", before); err != nil {
		require.ErrorIs(t, err, locker.ErrHeld, "it may have another ID now")
	}
	require.NoError(t, other.Unlock(t.Context()), "nobody has shown it")
}
