package redisscript

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

// in is an owner of a process that is subscribed, with its place in its name, as a waiter of Wait has it.
func in(process string, place uint64, who string) string {
	return fmt.Sprintf("p%s/%d/%s", process, place, who)
}

// placeNow is a place as Redlock makes them: µs and ten bits more.
func (s *atServer) placeNow() uint64 { return uint64(s.serverTime()) << 10 }

// waits has an owner propose the server's clock, and find that it has to wait.
func (s *atServer) waits(owner string) (a answer) {
	s.t.Helper()
	a = s.propose(owner, ttl, s.serverTime())
	require.EqualValues(s.t, held, a.status, owner)
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
		assert.Equal(t, w == early, s.waits(w).place == now)
	}
	require.Equal(t, []string{early, between, late}, s.queue())
	s.waits(late)
	require.Equal(t, []string{early, between, late}, s.queue(), "asking again changes nothing")
	owner, token := "holder", h.token
	for _, w := range []string{early, between, late} {
		require.EqualValues(t, 1, s.release(owner, token, 0))
		require.Equal(t, ">"+w, s.owner())
		a := s.propose(w, ttl, s.serverTime())
		require.EqualValues(t, granted, a.status)
		owner, token = w, a.token
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
	assert.True(t, s.waits(late).back)
	assert.True(t, s.waits(early).back)
	assert.False(t, s.waits(early).back, "it is there")
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
			require.EqualValues(t, granted, h.status)
			assert.Equal(t, c.want, s.waits(in("P", asks, "w")).earlier, "of a hold")
			s.release(in("P", asks, "w"), 0, 0)
			s.release(c.owner, h.token, 0)

			other := s.ask("holder", ttl, 0)
			if c.owner == "holder" {
				return // nothing is claimed for it
			}
			require.EqualValues(t, held, s.ask(c.owner, ttl, 0).status)
			s.release("holder", other.token, 0)
			require.Equal(t, ">"+c.owner, s.owner())
			assert.Equal(t, c.want, s.waits(in("P", asks, "w")).earlier, "of a claim")
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
			require.EqualValues(t, granted, s.propose(c.holder, ttl, s.serverTime()).status)
			s.waits(in("Q", c.first, "first"))
			s.expire()
			assert.Equal(t, c.want, s.waits(in("P", 10, "w")).earlier)
			assert.Equal(t, ">"+in("Q", c.first, "first"), s.owner())
		})
	}
}

// Only a waiter that has its place in its name is told: others do not give anything back.
func TestWait_earlierIsNotToldToOthers(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	require.EqualValues(t, granted, s.propose(in("Q", 1, "h"), ttl, s.serverTime()).status)
	assert.False(t, s.ask("pP/w", ttl, 0).earlier)
	assert.False(t, s.ask("newcomer", ttl, 0).earlier)
}

// The number of a waiter that has its place in its name is a token: a free lock is taken under it, and a claimed one too.
func TestWait_aWaitersProposalIsAccepted(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.subscribe("P")
	w := in("P", s.placeNow(), "w")
	proposed := s.serverTime()
	a := s.propose(w, ttl, proposed)
	require.EqualValues(t, granted, a.status)
	require.Equal(t, proposed, a.token, "of a lock that the server does not know")
	require.EqualValues(t, 1, s.release(w, a.token, 0))

	next := in("P", s.placeNow(), "next")
	a = s.propose(next, ttl, proposed+5)
	require.Equal(t, proposed+5, a.token, "of a free lock, by the short path")
	require.Equal(t, strconv.FormatInt(proposed+5, 10), s.rdb.HGet(t.Context(), s.keys[0], "token").Val())
	third := in("P", s.placeNow(), "third")
	s.waits(third)
	require.EqualValues(t, 1, s.release(next, a.token, 0))
	require.Equal(t, ">"+third, s.owner())
	b := s.propose(third, ttl, proposed+9)
	require.EqualValues(t, granted, b.status)
	require.Equal(t, proposed+9, b.token, "of one that is kept for it")
	require.EqualValues(t, 1, s.release(third, b.token, 0))
	a = s.propose(in("P", 1, "z"), ttl, proposed+9)
	require.Equal(t, b.token+1, a.token, "one that is not larger than the last is not")
	require.EqualValues(t, 1, s.release(in("P", 1, "z"), a.token, 0))
	s.wantIdle()
}

// atDriver is a Driver whose runner is the server.
func (s *atServer) driver() *Driver {
	d := NewDriver(&fakeRunner{answer: func(script *Script, args []any) (any, error) {
		return s.rdb.Eval(context.Background(), script.Source, keysFor(script, s.keys), args...).Result()
	}})
	s.t.Cleanup(func() { _ = d.Close(noClient) })
	return d
}

// keysFor returns those of both that a script is given.
func keysFor(script *Script, both []string) []string {
	if script.Queue {
		return both
	}
	return both[:1]
}

func untold(bool) {}

func TestWait_releaseGivesUpThePlace(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	d := s.driver()
	h := s.ask("holder", ttl, 0)
	l := d.Candidate(driver.Request{Name: "x", TTL: ttl}, s.placeNow(), untold)
	require.False(t, l.Known(), "nothing was sent")
	_, err := l.Propose(t.Context(), uint64(s.serverTime()))
	require.ErrorIs(t, err, driver.ErrHeld)
	require.True(t, l.Known())
	require.Len(t, s.queue(), 1)
	require.NoError(t, l.Release(t.Context()))
	require.Empty(t, s.queue())
	require.ErrorIs(t, l.Release(t.Context()), driver.ErrLost, "it is not there")
	require.EqualValues(t, 1, s.release("holder", h.token, 0))
	s.wantIdle()
}

func TestWait_releaseOfWhatWasGranted(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	d := s.driver()
	l := d.Candidate(driver.Request{Name: "x", TTL: ttl}, s.placeNow(), untold)
	token := uint64(s.serverTime())
	earlier, err := l.Propose(t.Context(), token)
	require.NoError(t, err)
	require.False(t, earlier)
	require.Equal(t, token, l.Token())
	require.Positive(t, l.Validity())
	require.NoError(t, l.Release(t.Context()))
	s.wantIdle()
}

func TestServerTime_isThatOfTheLatestAnswer(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	d := s.driver()
	_, known := d.ServerTime()
	require.False(t, known)
	_, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: ttl})
	require.NoError(t, err)
	now, known := d.ServerTime()
	require.True(t, known)
	assert.InDelta(t, s.serverTime(), now.UnixMicro(), 1e6)
}
