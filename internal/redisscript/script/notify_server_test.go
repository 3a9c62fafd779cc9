package script

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The first that comes tells the processes that hold the lock and have asked, and those behind it
// have nothing to tell.
func TestNotify(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	p, q := s.subscribe("P"), s.subscribe("Q")
	noted := func() string { return s.rdb.HGet(t.Context(), s.keys[0], "queue").Val() }
	ask := func(owner, process string, want int64) {
		t.Helper()
		require.Equal(t, want, s.run(Notify, []any{owner, process}))
	}
	require.Equal(t, Granted, int(s.ask("first", ttl, 0).Status))
	ask("another", "pP/", 0)
	assert.Empty(t, noted(), "who does not hold the lock is not told")
	ask("first", "", 0)
	assert.Empty(t, noted(), "nor one that is not subscribed")
	require.Equal(t, int64(1), s.run(Downgrade, []any{"first"}))
	share, err := ParseAnswer(s.run(TakeShared, []any{"~share", Expiry(ttl), inTime(0), ""}), 0)
	require.NoError(t, err)
	require.EqualValues(t, Granted, share.Status)
	for range 2 {
		ask("first", "pP/", 0)
		ask("~share", "pQ/", 0)
		assert.Equal(t, "pP/pQ/", noted())
	}
	require.EqualValues(t, Held, s.ask("tries", ttl, 0).Status)
	assert.Equal(t, "pP/pQ/", noted(), "of one that does not wait nobody is told")

	require.EqualValues(t, Held, s.ask("pR/waits", ttl, 0).Status)
	assert.Equal(t, "pP/", (<-p).Payload)
	assert.Equal(t, "pQ/", (<-q).Payload)
	assert.Equal(t, "1", noted())
	require.EqualValues(t, Held, s.ask("pR/too", ttl, 0).Status)
	ask("first", "pP/", 1)
	assert.Empty(t, p, "once is enough")
}

// A hold that has ended leaves nobody to be told of the next one's waiters for long, and of many
// that have asked those are forgotten which did first: they look by themselves.
func TestNotify_isBounded(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	noted := func() string { return s.rdb.HGet(t.Context(), s.keys[0], "queue").Val() }
	first := s.ask("first", ttl, 0)
	for i := range 1000 {
		require.EqualValues(t, 0, s.run(Notify, []any{"first", fmt.Sprintf("pPROCESS%05d/", i)}))
		require.Less(t, len(noted()), 1100)
	}
	assert.True(t, strings.HasSuffix(noted(), "pPROCESS00999/"))
	require.EqualValues(t, 1, s.release("first", first.Token, 0))
	assert.Empty(t, noted())

	s.ask("first", ttl, 0)
	require.EqualValues(t, 0, s.run(Notify, []any{"first", "pP/"}))
	s.expire()
	require.EqualValues(t, 0, s.run(Notify, []any{"first", "pQ/"}))
	assert.Equal(t, "pP/", noted(), "of a hold that has expired nothing is noted")
	second := s.ask("second", ttl, 0)
	require.EqualValues(t, Granted, second.Status)
	require.EqualValues(t, 1, s.release("second", second.Token, 0))
	assert.Empty(t, noted())
	s.wantIdle()
}
