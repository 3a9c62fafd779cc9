package history

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
)

// A fault counts if it hit a holder, and if what clients were told shows that it acted.
func TestHits(t *testing.T) {
	held := func(more ...Event) script {
		return append(script{call(0, OpLock, 0, 10), sample(0, 11, 12, 5)}, more...)
	}
	silenced := Fault{Kind: "StopServer", From: 100e6, Set: 110e6, Undone: 400e6, To: 410e6, Mutes: Everyone, Until: 300e6}
	cut := Fault{Kind: "Through", From: 100e6, Set: 110e6, Undone: 400e6, To: 410e6, Mutes: ItsVictim, Until: 300e6}
	revoked := Fault{Kind: "Revoke", From: 100e6, Set: 110e6, To: 111e6, Until: 300e6}
	moved := Fault{Kind: "MoveClock", From: 100e6, Set: 110e6, Undone: 400e6, To: 410e6, Until: 300e6}
	ofNobody := revoked
	ofNobody.Until = 0
	lost := call(0, OpExtend, 120, 130, IsLost)
	for _, c := range []struct {
		what  string
		fault Fault
		then  script
		hits  int
	}{
		{"silence", silenced, held(call(1, OpLock, 250, 390, OtherErr)), 1},
		{"silence, and an answer to what was asked at its beginning", silenced, held(call(1, OpLock, 150, 390)), 1},
		{"silence, and an answer after it", silenced, held(call(1, OpLock, 250, 405)), 1},
		{"silence, and a grant", silenced, held(call(1, OpLock, 250, 390)), 0},
		{"a client cut off, and a grant to another", cut, held(call(1, OpLock, 250, 390)), 1},
		{"a client cut off, and its Extend, which may need no request", cut, held(call(0, OpExtend, 250, 390)), 1},
		{"revoked, and told", revoked, held(lost), 1},
		{"revoked, and never told", revoked, held(call(0, OpUnlock, 250, 260)), 0},
		{"revoked, and another has it", revoked, held(call(1, OpLock, 20, 115)), 1},
		{"revoked, and another has it after Unlock", revoked, held(call(0, OpUnlock, 110, 120), call(1, OpLock, 20, 118)), 0},
		{"revoked, and over by itself", revoked, held(sample(0, 299, 300, 0), call(1, OpLock, 20, 299)), 0},
		{"revoked, and another name is taken", revoked, held(call(3, OpLock, 20, 115)), 0},
		{"revoked, of nobody who holds", ofNobody, held(lost), 0},
		{"what cannot be seen", moved, held(), 1},
	} {
		h := c.then.played(Revocable)
		h.Faults = []Fault{c.fault}
		assert.Equal(t, c.hits, h.Hits()[c.fault.Kind].OfHolders, c.what)
	}
}

// A history that is cut is judged as the whole is.
func TestParts(t *testing.T) {
	one := script{call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30)}
	for _, c := range []struct {
		what  string
		then  script
		parts int
		legal bool
	}{
		{"one after the other", script{call(1, OpLock, 40, 50), sample(1, 51, 52, 6), call(1, OpUnlock, 60, 70)}, 2, true},
		{"a token falls from part to part", script{call(1, OpLock, 40, 50), sample(1, 51, 52, 4), call(1, OpUnlock, 60, 70)}, 2, false},
		{"one waits meanwhile", script{call(1, OpLock, 5, 50), sample(1, 51, 52, 6), call(1, OpUnlock, 60, 70)}, 1, true},
		{"one never unlocks", script{call(1, OpLock, 40, 50), sample(1, 51, 52, 6), call(0, OpLock, 60, 70)}, 2, false},
	} {
		h := slices.Concat(one, c.then).played(Exclusive)
		holds := h.holds()["x"]
		assert.Len(t, parts(holds), c.parts, c.what)
		assert.Equal(t, c.legal, legal(holds, CheckTime) == porcupine.Ok, c.what)
	}
}

// What the checker cannot decide in time is neither legal nor not: here any of many holds may have
// been before any other, and a token that nobody should see comes last. What is refused elsewhere
// stays refused.
func TestParts_undecided(t *testing.T) {
	t.Parallel()
	const clients = 24
	h := &History{Demand: Exclusive}
	for c := range clients {
		h.Clients = append(h.Clients, Client{Who: "c", Name: "x", TTL: time.Minute})
		h.Events = append(h.Events, call(c, OpLock, 0, 900), call(c, OpUnlock, 901, 990, IsLost))
	}
	const limit = 2 * time.Second
	assert.Equal(t, porcupine.Ok, legal(h.holds()["x"], CheckTime))
	more := script{}
	for id := clients; id < clients+2; id++ { // the same token
		h.Clients = append(h.Clients, h.Clients[0])
		more = append(more, call(id, OpLock, 900, 950), sample(id, 951, 980, 5), call(id, OpUnlock, 981, 1000))
	}
	h.Events = append(h.Events, more...)
	assert.Equal(t, porcupine.Unknown, legal(h.holds()["x"], limit))
	h.Events = append(h.Events, call(0, OpLock, 2000, 2001), sample(0, 2010, 2011, 6), call(0, OpUnlock, 2100, 2101),
		call(1, OpLock, 2020, 2021), sample(1, 2030, 2031, 7), call(1, OpUnlock, 2040, 2041))
	assert.Equal(t, porcupine.Illegal, legal(h.holds()["x"], limit), "a part that can be decided is")
}
