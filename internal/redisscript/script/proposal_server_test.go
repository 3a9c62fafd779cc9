package script

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serverTime is the server's clock in µs.
func (s *atServer) serverTime() int64 {
	s.t.Helper()
	now, err := s.rdb.Time(s.t.Context()).Result()
	require.NoError(s.t, err)
	return now.UnixMicro()
}

// accepts takes the lock under a proposed token, if the server accepts that, and releases it.
func (s *atServer) accepts(token int64) (accepted int64) {
	s.t.Helper()
	a := s.propose("proposer", ttl, token)
	require.EqualValues(s.t, Granted, a.Status)
	require.EqualValues(s.t, 1, s.release("proposer", a.Token, 0))
	return a.Token
}

func (s *atServer) forget() {
	s.t.Helper()
	require.NoError(s.t, s.rdb.Del(s.t.Context(), s.keys...).Err())
}

// A token is forgotten a minute after its hold. One that is further ahead of the server's clock would be followed by smaller ones.
func TestPropose_furtherAheadThanTokensAreRememberedIsNotAccepted(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	for _, known := range []bool{false, true} {
		before := s.serverTime()
		token := s.accepts(before + time.Hour.Microseconds())
		assert.Less(t, token, s.serverTime()+Keep.Microseconds(), "known: %v", known)
		assert.Greater(t, token, before, "known: %v", known)
	}
	near := s.serverTime() + (28 * time.Second).Microseconds()
	assert.Equal(t, near, s.accepts(near), "one that is nearer is")
	assert.Equal(t, near+1, s.accepts(s.serverTime()+time.Hour.Microseconds()), "and none makes a smaller one")
}

// A server that has no last token may have lost it.
func TestPropose_withoutALastTokenIsTheServersClockIfThatIsPastIt(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	for _, behind := range []time.Duration{2 * time.Second, time.Minute, 72 * time.Hour} {
		s.forget()
		before := s.serverTime()
		token := s.accepts(before - behind.Microseconds())
		assert.GreaterOrEqual(t, token, before, "by a clock that is %v behind", behind)
		assert.LessOrEqual(t, token, s.serverTime()+time.Second.Microseconds(), "and as far ahead as the mark is")
	}
	last := s.accepts(1)
	assert.Greater(t, last, s.serverTime()-time.Minute.Microseconds())
	assert.Equal(t, last+1, s.accepts(2), "one that is known counts alone")

	s.forget()
	justNow := s.serverTime() - 100*time.Millisecond.Microseconds()
	assert.Equal(t, justNow, s.accepts(justNow), "requests take their time: that is no reason for tokens to differ")
}

// A free lock is taken the short way where that says the same as the long one.
func TestPropose_ofAFreeLockIsWhatItWouldBeTheLongWay(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	const short = "if not lock[1] and not lock[3]"
	long := &Script{Source: strings.Replace(Propose.Source, short, "if false", 1)}
	require.NotEqual(t, Propose.Source, long.Source)
	const second = 1_000_000
	for _, c := range []struct{ last, proposed int64 }{ // by the server's clock
		{-second, 0},
		{-second, -second},
		{-second, -second - 1},
		{-second, -second + 1},
		{-second, 29 * second},
		{-second, 31 * second},
		{-second, 9e12},
		{20 * second, 0},
		{20 * second, 20*second + 1},
		{40 * second, 29 * second},
		{-9e14, -8e14},
		{-second, -9e14},
	} {
		var accepted []bool
		var stored [][]any
		for _, script := range []*Script{Propose, long} {
			now := s.serverTime()
			last, proposed := now+c.last, now+c.proposed
			s.forget()
			require.NoError(t, s.rdb.HSet(t.Context(), s.keys[0], "token", last, "before", 1).Err())
			a, err := ParseAnswer(s.run(script, []any{"proposer", Expiry(ttl), inTime(proposed), "meta"}), proposed)
			require.NoError(t, err)
			require.EqualValues(t, Granted, a.Status)
			require.Greater(t, a.Token, last)
			require.InDelta(t, now, a.Now, 10*second)
			hash := s.rdb.HGetAll(t.Context(), s.keys[0]).Val()
			require.Equal(t, strconv.FormatInt(a.Token, 10), hash["token"])
			require.Equal(t, strconv.FormatInt(last, 10), hash["before"])
			accepted = append(accepted, a.Token == proposed)
			stored = append(stored, []any{hash["owner"], hash["meta"], hash["lapsed"], len(hash)})
			assert.Positive(t, s.left())
		}
		assert.Equal(t, accepted[1], accepted[0], "%+v", c)
		assert.Equal(t, stored[1], stored[0], "%+v", c)
	}
}

// The number of an owner that waits is its place, also where the lock is free and nobody else waits.
func TestPropose_aPlaceIsNoToken(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	now := s.serverTime()
	require.NoError(t, s.rdb.HSet(t.Context(), s.keys[0], "token", now-60e6, "before", 1).Err())
	a := s.ask("pP/a", ttl, uint64(now-10e6))
	require.EqualValues(t, Granted, a.Status)
	assert.GreaterOrEqual(t, a.Token, now)
}

// Without the mark a token that is far ahead would be forgotten before the clock has passed it.
func TestRaise_farAheadWithoutAMarkIsUnsupported(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	require.NoError(t, s.rdb.Set(t.Context(), MarkKey(t.Name()+":x", false), "in the way", 0).Err())
	now := s.serverTime()
	for ahead, want := range map[time.Duration]int64{20 * time.Second: 1, time.Hour: -1} {
		a := s.ask("proposer", ttl, uint64(now))
		require.EqualValues(t, Granted, a.Status)
		assert.Equal(t, want, s.run(Raise, []any{"proposer", now + ahead.Microseconds(), ""}), "%v ahead", ahead)
		require.EqualValues(t, 1, s.release("proposer", a.Token, 1))
		s.forget()
	}
}
