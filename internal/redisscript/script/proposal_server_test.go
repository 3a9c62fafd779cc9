package script

import (
	"fmt"
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
			a := s.take(script, "proposer", ttl, inTime(proposed), "meta", proposed)
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

// The number that a waiting owner sends is its place, even if the lock is free and nobody else
// waits.
func TestTake_aPlaceIsNoToken(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	former := s.ask("former", ttl, 0)
	require.EqualValues(t, 1, s.release("former", former.Token, 0))
	place := former.Token - 10e6
	a := s.take(Take, "pP/a", ttl, inTime(place), "", place)
	require.EqualValues(t, Granted, a.Status)
	assert.Greater(t, a.Token, former.Token)
}

func TestRaise_isAheadByHalfADayAtMost(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	now := s.serverTime()
	a := s.ask("owner", ttl, 0)
	far, near := now+(13*time.Hour).Microseconds(), now+(11*time.Hour).Microseconds()
	for _, step := range []struct{ wanted, reply int64 }{{far, -1}, {near, 1}, {near, 1}, {near - 1, 0}, {far, 1}} {
		assert.Equal(t, step.reply, s.run(Raise, []any{"owner", step.wanted, ""}))
	}
	require.EqualValues(t, 1, s.release("owner", far, 0))
	assert.EqualValues(t, 0, s.run(Raise, []any{"owner", far + 1, ""}))
	assert.Greater(t, s.ask("next", ttl, 0).Token, max(far, a.Token))
}

// in is an owner of a process that is subscribed, with its place in its name, as a waiter of Wait
// has it.
func in(process string, place uint64, who string) string {
	return fmt.Sprintf("p%s/%d/%s", process, place, who)
}

// placeNow is a place as Redlock makes them: µs and ten bits more.
func (s *atServer) placeNow() uint64 { return uint64(s.serverTime()) << 10 }

// waits has an owner propose the server's clock, and find that it has to wait.
func (s *atServer) waits(owner string) (a Answer) {
	s.t.Helper()
	a = s.propose(owner, ttl, s.serverTime())
	require.EqualValues(s.t, Held, a.Status, owner)
	return a
}

// The number of such a waiter is a token. If the queue has lost it, it comes back to its place.
func TestWait_aPlaceInTheNameOrdersWaiters(t *testing.T) {
	t.Parallel()
	s := newAtServer(t, "P", "Q")
	h := s.ask("holder", ttl, 0)
	now := s.placeNow()
	late, early, between := in("P", now+3<<10, "late"), in("Q", now, "early"), in("P", now+1<<10, "between")
	for _, w := range []string{late, early, between} {
		assert.Equal(t, w == early, s.waits(w).Place == now)
	}
	require.Equal(t, []string{early, between, late}, s.queue())
	assert.False(t, s.waits(late).Back)
	require.Equal(t, []string{early, between, late}, s.queue(), "asking again changes nothing")
	require.NoError(t, s.rdb.Del(t.Context(), s.keys[1]).Err())
	for _, w := range []string{late, between, early} {
		assert.True(t, s.waits(w).Back)
	}
	require.Equal(t, []string{early, between, late}, s.queue())
	owner, token := "holder", h.Token
	for _, w := range []string{early, between, late} {
		require.EqualValues(t, 1, s.release(owner, token, 0))
		require.Equal(t, ">"+w, s.owner())
		proposed := s.serverTime()
		a := s.propose(w, ttl, proposed)
		require.EqualValues(t, Granted, a.Status)
		require.Equal(t, proposed, a.Token)
		owner, token = w, a.Token
	}
	require.EqualValues(t, 1, s.release(owner, token, 0))
	s.wantIdle()
}

func TestWait_earlierIsToldOfWhoeverHasASmallerPlace(t *testing.T) {
	t.Parallel()
	const before, asks, after = 9, 10, 100 // of which the texts sort otherwise
	for name, c := range map[string]struct {
		owner string
		want  bool
	}{
		"a smaller place":                      {in("Q", before, "o"), true},
		"a larger place":                       {in("Q", after, "o"), false},
		"the same place":                       {in("Q", asks, "o"), false},
		"it did not wait":                      {"holder", false},
		"it waited in a place of the server's": {"pQ/o", false},
		"it polls":                             {"-Q/9/o", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAtServer(t, "Q")
			h := s.propose(c.owner, ttl, s.serverTime())
			require.EqualValues(t, Granted, h.Status)
			assert.Equal(t, c.want, s.waits(in("P", asks, "w")).Earlier, "of a hold")
			s.release(in("P", asks, "w"), 0, 0)
			for _, other := range []string{"pP/w", "newcomer"} {
				assert.False(t, s.ask(other, ttl, 0).Earlier, "without a place in its name it has nothing to give back")
				s.release(other, 0, 0)
			}
			s.release(c.owner, h.Token, 0)

			other := s.ask("holder", ttl, 0)
			if c.owner == "holder" {
				return // nothing is claimed for it
			}
			require.EqualValues(t, Held, s.ask(c.owner, ttl, 0).Status)
			s.release("holder", other.Token, 0)
			require.Equal(t, ">"+c.owner, s.owner())
			assert.Equal(t, c.want, s.waits(in("P", asks, "w")).Earlier, "of a claim")
		})
	}
}

// A request that finds an expired hold has the lock claimed for the first waiter. Earlier in its
// reply is about that waiter, not about the former holder.
func TestWait_earlierIsOfTheClaimThatTheRequestHasMade(t *testing.T) {
	t.Parallel()
	for name, holder := range map[string]string{
		"by one that did not wait": "holder",
		"by one before both":       in("Q", 1, "h"),
		"by one after both":        in("Q", 20, "h"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newAtServer(t, "Q", "P")
			require.EqualValues(t, Granted, s.propose(holder, ttl, s.serverTime()).Status)
			first := in("Q", 5, "first")
			s.waits(first)
			s.expire()
			assert.True(t, s.waits(in("P", 10, "w")).Earlier)
			assert.Equal(t, ">"+first, s.owner())
		})
	}
}
