package script

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// in is an owner of a process that is subscribed, with its place in its name, as a waiter of Wait has it.
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

func TestWait_aPlaceInTheNameOrdersWaiters(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.subscribe("P")
	s.subscribe("Q")
	h := s.ask("holder", ttl, 0)
	now := s.placeNow()
	late, early, between := in("P", now+3<<10, "late"), in("Q", now, "early"), in("P", now+1<<10, "between")
	for _, w := range []string{late, early, between} {
		assert.Equal(t, w == early, s.waits(w).Place == now)
	}
	require.Equal(t, []string{early, between, late}, s.queue())
	s.waits(late)
	require.Equal(t, []string{early, between, late}, s.queue(), "asking again changes nothing")
	owner, token := "holder", h.Token
	for _, w := range []string{early, between, late} {
		require.EqualValues(t, 1, s.release(owner, token, 0))
		require.Equal(t, ">"+w, s.owner())
		a := s.propose(w, ttl, s.serverTime())
		require.EqualValues(t, Granted, a.Status)
		owner, token = w, a.Token
	}
	require.EqualValues(t, 1, s.release(owner, token, 0))
	s.wantIdle()
}

// A waiter that the queue has lost comes back to its place, and is told.
func TestWait_aPlaceInTheNameIsNotLostWithTheQueue(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.subscribe("P")
	s.ask("holder", ttl, 0)
	now := s.placeNow()
	early, late := in("P", now, "early"), in("P", now+1<<10, "late")
	s.waits(early)
	s.waits(late)
	require.NoError(t, s.rdb.Del(t.Context(), s.keys[1]).Err())
	assert.True(t, s.waits(late).Back)
	assert.True(t, s.waits(early).Back)
	assert.False(t, s.waits(early).Back, "it is there")
	assert.Equal(t, []string{early, late}, s.queue())
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
			s := newAtServer(t)
			s.subscribe("Q")
			h := s.propose(c.owner, ttl, s.serverTime())
			require.EqualValues(t, Granted, h.Status)
			assert.Equal(t, c.want, s.waits(in("P", asks, "w")).Earlier, "of a hold")
			s.release(in("P", asks, "w"), 0, 0)
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

// Who finds that a hold has expired has the lock kept for the first, and is told of that one and not of the hold.
func TestWait_earlierIsOfTheClaimThatTheRequestHasMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holder string
		first  uint64
		want   bool
	}{
		"by one that did not wait": {"holder", 5, true},
		"by one before both":       {in("Q", 1, "h"), 5, true},
		"by one after both":        {in("Q", 20, "h"), 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAtServer(t)
			s.subscribe("Q")
			s.subscribe("P")
			require.EqualValues(t, Granted, s.propose(c.holder, ttl, s.serverTime()).Status)
			s.waits(in("Q", c.first, "first"))
			s.expire()
			assert.Equal(t, c.want, s.waits(in("P", 10, "w")).Earlier)
			assert.Equal(t, ">"+in("Q", c.first, "first"), s.owner())
		})
	}
}

// Only a waiter that has its place in its name is told: others do not give anything back.
func TestWait_earlierIsNotToldToOthers(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	require.EqualValues(t, Granted, s.propose(in("Q", 1, "h"), ttl, s.serverTime()).Status)
	assert.False(t, s.ask("pP/w", ttl, 0).Earlier)
	assert.False(t, s.ask("newcomer", ttl, 0).Earlier)
}

// The number of a waiter that has its place in its name is a token: a free lock is taken under it, and a claimed one too.
func TestWait_aWaitersProposalIsAccepted(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.subscribe("P")
	w := in("P", s.placeNow(), "w")
	proposed := s.serverTime()
	a := s.propose(w, ttl, proposed)
	require.EqualValues(t, Granted, a.Status)
	require.Equal(t, proposed, a.Token, "of a lock that the server does not know")
	require.EqualValues(t, 1, s.release(w, a.Token, 0))

	next := in("P", s.placeNow(), "next")
	a = s.propose(next, ttl, proposed+5)
	require.Equal(t, proposed+5, a.Token, "of a free lock, by the short path")
	require.Equal(t, strconv.FormatInt(proposed+5, 10), s.rdb.HGet(t.Context(), s.keys[0], "token").Val())
	third := in("P", s.placeNow(), "third")
	s.waits(third)
	require.EqualValues(t, 1, s.release(next, a.Token, 0))
	require.Equal(t, ">"+third, s.owner())
	b := s.propose(third, ttl, proposed+9)
	require.EqualValues(t, Granted, b.Status)
	require.Equal(t, proposed+9, b.Token, "of one that is kept for it")
	require.EqualValues(t, 1, s.release(third, b.Token, 0))
	a = s.propose(in("P", 1, "z"), ttl, proposed+9)
	require.Equal(t, b.Token+1, a.Token, "one that is not larger than the last is not")
	require.EqualValues(t, 1, s.release(in("P", 1, "z"), a.Token, 0))
	s.wantIdle()
}
