package conformance

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A fault counts if it hit a holder, and if what clients were told shows that it acted.
func TestHits(t *testing.T) {
	held := func(more ...event) script {
		return append(script{call(0, opLock, 0, 10), sample(0, 11, 12, 5)}, more...)
	}
	silenced := faultRecord{Kind: "StopServer", From: 100e6, Set: 110e6, Undone: 400e6, To: 410e6, Mutes: everyone, Until: 300e6}
	cut := faultRecord{Kind: "Through", From: 100e6, Set: 110e6, Undone: 400e6, To: 410e6, Mutes: itsVictim, Until: 300e6}
	revoked := faultRecord{Kind: "Revoke", From: 100e6, Set: 110e6, To: 111e6, Until: 300e6}
	moved := faultRecord{Kind: "MoveClock", From: 100e6, Set: 110e6, Undone: 400e6, To: 410e6, Until: 300e6}
	ofNobody := revoked
	ofNobody.Until = 0
	lost := call(0, opExtend, 120, 130, isLost)
	for _, c := range []struct {
		what  string
		fault faultRecord
		then  script
		hits  int
	}{
		{"silence", silenced, held(call(1, opLock, 250, 390, otherErr)), 1},
		{"silence, and an answer to what was asked at its beginning", silenced, held(call(1, opLock, 150, 390)), 1},
		{"silence, and an answer after it", silenced, held(call(1, opLock, 250, 405)), 1},
		{"silence, and a grant", silenced, held(call(1, opLock, 250, 390)), 0},
		{"a client cut off, and a grant to another", cut, held(call(1, opLock, 250, 390)), 1},
		{"a client cut off, and its Extend, which may need no request", cut, held(call(0, opExtend, 250, 390)), 1},
		{"revoked, and told", revoked, held(lost), 1},
		{"revoked, and never told", revoked, held(call(0, opUnlock, 250, 260)), 0},
		{"revoked, and another has it", revoked, held(call(1, opLock, 20, 115)), 1},
		{"revoked, and another has it after Unlock", revoked, held(call(0, opUnlock, 110, 120), call(1, opLock, 20, 118)), 0},
		{"revoked, and over by itself", revoked, held(sample(0, 299, 300, 0), call(1, opLock, 20, 299)), 0},
		{"revoked, and another name is taken", revoked, held(call(3, opLock, 20, 115)), 0},
		{"revoked, of nobody who holds", ofNobody, held(lost), 0},
		{"what cannot be seen", moved, held(), 1},
	} {
		h := c.then.played(revocable)
		h.Faults = []faultRecord{c.fault}
		hits, _ := h.hits()
		assert.Equal(t, c.hits, hits, c.what)
	}
}

func TestShortcoming(t *testing.T) {
	enough := score{holds: 20, fewest: 10, hits: 4, wanted: 2}
	for _, c := range []struct {
		what string
		but  func(*score)
		says string
	}{
		{"nothing", func(*score) {}, ""},
		{"few hits", func(s *score) { s.hits, s.faults = 1, map[string]int{"Revoke": 7} }, "of 7 faults 1 befell a holder"},
		{"as few, of several histories", func(s *score) { s.hits, s.wanted, s.histories = 2, 4, 2 }, ""},
		{"none, of several histories", func(s *score) { s.hits, s.wanted, s.histories = 0, 2, 2 }, "want 1"},
		{"few holds", func(s *score) { s.holds = 2 }, "only 2 holds"},
		{"undecided", func(s *score) { s.undecided = []uint64{42} }, "seeds [42]"},
	} {
		s := enough
		c.but(&s)
		err := s.shortcoming()
		if c.says == "" {
			require.NoError(t, err, c.what)
			continue
		}
		require.ErrorIs(t, err, errInDoubt, c.what)
		assert.ErrorContains(t, err, c.says, c.what)
	}
}

// What says nothing of the lock is no sighting of what the lock is known to break.
func TestJudge_inDoubt(t *testing.T) {
	few := (score{wanted: 2}).shortcoming()
	assert.Equal(t, Unseen, judge(Scenario{}, tally{}, few, true, "by design").Outcome)
	r := judge(Scenario{}, tally{}, few, false, "")
	assert.Equal(t, Undecided, r.Outcome)
	assert.True(t, r.Outcome.failed(), "a test that decides nothing is no test")
	assert.Contains(t, r.String(), "undecided")
}

// A history that is cut is judged as the whole is.
func TestParts(t *testing.T) {
	one := script{call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30)}
	for _, c := range []struct {
		what  string
		then  script
		parts int
		legal bool
	}{
		{"one after the other", script{call(1, opLock, 40, 50), sample(1, 51, 52, 6), call(1, opUnlock, 60, 70)}, 2, true},
		{"a token falls from part to part", script{call(1, opLock, 40, 50), sample(1, 51, 52, 4), call(1, opUnlock, 60, 70)}, 2, false},
		{"one waits meanwhile", script{call(1, opLock, 5, 50), sample(1, 51, 52, 6), call(1, opUnlock, 60, 70)}, 1, true},
		{"one never unlocks", script{call(1, opLock, 40, 50), sample(1, 51, 52, 6), call(0, opLock, 60, 70)}, 2, false},
	} {
		h := slices.Concat(one, c.then).played(exclusive)
		holds := h.holds()["x"]
		assert.Len(t, parts(holds), c.parts, c.what)
		assert.Equal(t, c.legal, legal(holds, checkTime) == porcupine.Ok, c.what)
	}
}

// What the checker cannot decide in time is neither legal nor not: here any of many holds may have
// been before any other, and a token that nobody should see comes last. What is refused elsewhere
// stays refused.
func TestParts_undecided(t *testing.T) {
	t.Parallel()
	const clients = 24
	h := &history{Demand: exclusive}
	for c := range clients {
		h.Clients = append(h.Clients, client{Who: "c", Name: "x", TTL: time.Minute})
		h.Events = append(h.Events, call(c, opLock, 0, 900), call(c, opUnlock, 901, 990, isLost))
	}
	const limit = 2 * time.Second
	assert.Equal(t, porcupine.Ok, legal(h.holds()["x"], checkTime))
	more := script{}
	for id := clients; id < clients+2; id++ { // the same token
		h.Clients = append(h.Clients, h.Clients[0])
		more = append(more, call(id, opLock, 900, 950), sample(id, 951, 980, 5), call(id, opUnlock, 981, 1000))
	}
	h.Events = append(h.Events, more...)
	assert.Equal(t, porcupine.Unknown, legal(h.holds()["x"], limit))
	h.Events = append(h.Events, call(0, opLock, 2000, 2001), sample(0, 2010, 2011, 6), call(0, opUnlock, 2100, 2101),
		call(1, opLock, 2020, 2021), sample(1, 2030, 2031, 7), call(1, opUnlock, 2040, 2041))
	assert.Equal(t, porcupine.Illegal, legal(h.holds()["x"], limit), "a part that can be decided is")
}
