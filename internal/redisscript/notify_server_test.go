package redisscript

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
		require.Equal(t, want, s.run(notify, []any{owner, process}))
	}
	require.Equal(t, granted, int(s.ask("first", ttl, 0).status))
	ask("another", "pP/", 0)
	assert.Empty(t, noted(), "who does not hold the lock is not told")
	ask("first", "", 0)
	assert.Empty(t, noted(), "nor one that is not subscribed")
	require.Equal(t, int64(1), s.run(downgrade, []any{"first"}))
	share, err := parseAnswer(s.run(takeShared, []any{"~share", expiry(ttl), inTime(0), ""}), 0)
	require.NoError(t, err)
	require.EqualValues(t, granted, share.status)
	for range 2 {
		ask("first", "pP/", 0)
		ask("~share", "pQ/", 0)
		assert.Equal(t, "pP/pQ/", noted())
	}
	require.EqualValues(t, held, s.ask("tries", ttl, 0).status)
	assert.Equal(t, "pP/pQ/", noted(), "of one that does not wait nobody is told")

	require.EqualValues(t, held, s.ask("pR/waits", ttl, 0).status)
	assert.Equal(t, "pP/", (<-p).Payload)
	assert.Equal(t, "pQ/", (<-q).Payload)
	assert.Equal(t, "1", noted())
	require.EqualValues(t, held, s.ask("pR/too", ttl, 0).status)
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
		require.EqualValues(t, 0, s.run(notify, []any{"first", fmt.Sprintf("pPROCESS%05d/", i)}))
		require.Less(t, len(noted()), 1100)
	}
	assert.True(t, strings.HasSuffix(noted(), "pPROCESS00999/"))
	require.EqualValues(t, 1, s.release("first", first.token, 0))
	assert.Empty(t, noted())

	s.ask("first", ttl, 0)
	require.EqualValues(t, 0, s.run(notify, []any{"first", "pP/"}))
	s.expire()
	require.EqualValues(t, 0, s.run(notify, []any{"first", "pQ/"}))
	assert.Equal(t, "pP/", noted(), "of a hold that has expired nothing is noted")
	second := s.ask("second", ttl, 0)
	require.EqualValues(t, granted, second.status)
	require.EqualValues(t, 1, s.release("second", second.token, 0))
	assert.Empty(t, noted())
	s.wantIdle()
}
