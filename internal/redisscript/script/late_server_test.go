package script

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// askLate is a take, sent so long ago, for a lock of 10 s, of which 4 s may have passed.
func (s *atServer) askLate(take *Script, owner string, ago time.Duration) (a Answer, by Due) {
	s.t.Helper()
	by = Due{Whole: s.serverTime() - ago.Microseconds(), Rest: (4 * time.Second).Microseconds()}
	return s.take(take, owner, ttl, by.Arg(&Mark{}, 0), "", 0), by
}

func (s *atServer) left() time.Duration {
	return s.rdb.PTTL(s.t.Context(), s.keys[0]).Val() - Keep
}

func TestLate_whatArrivesLateGetsWhatIsLeftAndItsOwnerCountsNoMore(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"never held", "held before"} {
		s := newAtServer(t)
		if before == "held before" {
			s.release("earlier", s.ask("earlier", ttl, 0).Token, 0)
		}
		sent := time.Now()
		a, by := s.askLate(Take, "owner", 3*time.Second)
		require.EqualValues(t, Granted, a.Status, before)
		left := s.left()
		assert.LessOrEqual(t, left, 7*time.Second+time.Millisecond, before)
		assert.GreaterOrEqual(t, by.Late(a.Now), 3*time.Second, before)
		counts := ttl - by.Late(a.Now)
		assert.GreaterOrEqual(t, left+time.Since(sent)+time.Millisecond, counts, "%s: its owner counts no more than there is", before)
		s.release("owner", a.Token, 0)
	}
}

func TestLate_whatArrivesTooLateGetsNothing(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	a, _ := s.askLate(Take, "owner", 5*time.Second)
	require.EqualValues(t, Late, a.Status)
	a = s.take(Take, "owner", ttl, Due{}.Arg(&Mark{}, 0), "", 0)
	require.EqualValues(t, Late, a.Status, "the server's clock is not known")
	assert.Empty(t, s.owner())
}

// A client library sends a request again by itself, and a waiter one of its own when a reply was lost.
func TestLate_whatIsSentTwiceLastsFromWhenItWasSent(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	first, _ := s.askLate(Take, "owner", 0)
	require.EqualValues(t, Granted, first.Status)
	again := func(ago time.Duration) (time.Duration, Due) {
		a, by := s.askLate(Take, "owner", ago)
		require.EqualValues(t, Granted, a.Status)
		require.Equal(t, first.Token, a.Token)
		assert.LessOrEqual(t, ttl-by.Late(a.Now), s.left()+time.Second, "what its owner counts")
		return s.left(), by
	}
	left, _ := again(3 * time.Second)
	assert.Greater(t, left, 9*time.Second, "an older one does not shorten it")
	require.NoError(t, s.rdb.PExpire(t.Context(), s.keys[0], 2*time.Second+Keep).Err())
	left, _ = again(5 * time.Second)
	assert.Greater(t, left, 4*time.Second, "nor is it refused, which would say that nothing is held")
	assert.LessOrEqual(t, left, 5*time.Second)
	left, _ = again(time.Second)
	assert.Greater(t, left, 8*time.Second, "a newer one lengthens it")
	assert.LessOrEqual(t, left, 9*time.Second)
}

// A server's clock of the year 2255, or a wrong one: no number is exact there.
func TestAcquire_ofAFreeLockByAClockBeyond2To53IsRefused(t *testing.T) {
	s := newAtServer(t)
	const waiter = "pP/a"
	s.ask(waiter, ttl, 0)
	s.release(waiter, 0, 0)
	before := s.rdb.HGet(t.Context(), s.keys[0], "token").Val()

	source := strings.Replace(Take.Source, "redis.call('TIME')", "{'9007199254', '740992'}", 1)
	require.NotEqual(t, Take.Source, source)
	_, err := s.rdb.Eval(t.Context(), source, s.keys, []any{waiter, Expiry(ttl), inTime(0), ""}...).Result()
	require.ErrorContains(t, err, "2^53")
	assert.Equal(t, before, s.rdb.HGet(t.Context(), s.keys[0], "token").Val())
}
