package history

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWitness_isShort: of many holds it shows those that cannot be.
func TestWitness_isShort(t *testing.T) {
	h := simulated(rand.New(rand.NewPCG(7, 0)), 1000)
	end := h.Events[len(h.Events)-1].Return/1e6 + 1000
	h.Events = append(
		h.Events,
		call(0, OpLock, end, end+1), sample(0, end+2, end+3, 1<<40), sample(0, end+50, end+51, 1<<40), call(0, OpUnlock, end+60, end+61),
		call(1, OpLock, end+10, end+11), sample(1, end+12, end+13, 1<<41), call(1, OpUnlock, end+20, end+21),
	)
	more := simulated(rand.New(rand.NewPCG(8, 0)), 300)
	for _, e := range more.Events {
		e.Call, e.Return = e.Call+(end+100)*1e6, e.Return+(end+100)*1e6
		if e.Token > 0 {
			e.Token += 1 << 42
		}
		h.Events = append(h.Events, e)
	}
	j := h.Check()
	require.Equal(t, porcupine.Illegal, j.result)
	assert.Len(t, j.witness, 2, "%s", lines(h, j.witness))
}

// TestReport: what is saved can be looked at, and judged again.
func TestReport(t *testing.T) {
	h := script{
		call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 100, 110),
		call(1, OpLock, 20, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50), call(1, OpLock, 51, 52, OtherErr),
	}.played(Exclusive)
	h.Seed, h.Scenario, h.Faults = 42, "a random <history>", []Fault{{Kind: "Through", What: "1: cut off", From: 15e6, To: 50e6}}
	j := h.Check()
	require.True(t, j.Refused())
	text := h.Report(j)
	for _, part := range []string{"token 5", "token 6", "0.0200 s to 0.0300 s: 1, Lock: nil", "1: cut off"} {
		assert.Contains(t, text, part)
	}
	files, err := h.Save(t.TempDir(), j)
	require.NoError(t, err)
	for _, file := range []string{files.Model, files.Timeline} {
		page, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(page), "cut off", file)
	}
	page, err := os.ReadFile(files.Timeline)
	require.NoError(t, err)
	assert.Contains(t, string(page), "a random &lt;history&gt;")
	assert.Equal(t, 2, strings.Count(string(page), `<text class="alarm" x="0"`), "the two holds that contradict each other")
	again, err := Read(files.History)
	require.NoError(t, err)
	want, err := json.Marshal(h)
	require.NoError(t, err)
	got, err := json.Marshal(again)
	require.NoError(t, err)
	assert.JSONEq(t, string(want), string(got))
	assert.Equal(t, j, again.Check())
}

// Read refuses what it could not judge, instead of judging something else, or panicking.
func TestRead_refuses(t *testing.T) {
	for says, text := range map[string]string{
		"no such file":                     "",
		"is no history: invalid character": "lock",
		"format is 0":                      `{}`,
		"unknown demand":                   `{"format":1,"demand":"much"}`,
		"there is no client 1":             `{"format":1,"demand":"exclusive","clients":[{}],"events":[{"c":1,"op":"Lock"}]}`,
		"there is no client -1":            `{"format":1,"demand":"exclusive","clients":[{}],"events":[{"c":-1,"op":"Lock"}]}`,
		"before it was called":             `{"format":1,"demand":"exclusive","clients":[{}],"events":[{"op":"Lock","call":2,"ret":1}]}`,
		"unknown operation":                `{"format":1,"demand":"exclusive","clients":[{}],"events":[{"op":"Steal"}]}`,
		"unknown result":                   `{"format":1,"demand":"exclusive","clients":[{}],"events":[{"op":"Lock","said":"maybe"}]}`,
		"fault 0: there is no client 3":    `{"format":1,"demand":"exclusive","clients":[{}],"faults":[{"client":3}]}`,
	} {
		file := filepath.Join(t.TempDir(), "history.json")
		if text != "" {
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		}
		_, err := Read(file)
		require.ErrorContains(t, err, says)
	}
}

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

// TestGolden judges files that were saved once: those whose names begin with "good" are histories
// of a lock, the others are not. A new version of this module has to read them, and to say the
// same.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.Len(t, files, 7)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			h, err := Read(file)
			require.NoError(t, err)
			j := h.Check()
			assert.False(t, j.Undecided())
			assert.Equal(t, !strings.HasPrefix(filepath.Base(file), "good"), j.Refused())
			drawn, err := h.Draw(filepath.Join(t.TempDir(), "history.json"), j)
			require.NoError(t, err)
			assert.Equal(t, j.Refused(), drawn.Model != "")
		})
	}
}

// The example of the page is one that Read takes, and that is refused.
func TestPage_itsExampleIsAHistory(t *testing.T) {
	page, err := os.ReadFile("../../docs/evidence/histories.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(page), "```json\n")
	example, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	file := filepath.Join(t.TempDir(), "history.json")
	require.NoError(t, os.WriteFile(file, []byte(example), 0o600))
	h, err := Read(file)
	require.NoError(t, err)
	j := h.Check()
	assert.True(t, j.Refused())
	assert.Contains(t, h.Report(j), "client 2, Lock: nil, token 6")
	for _, word := range []string{
		OpLock, OpTryLock, OpRLock, OpTryRLock, OpDowngrade, OpExtend, OpUnlock, OpToken, OpLost, OpRead, OpWrite,
		string(IsLost), string(IsNotHeld), string(IsHeld), string(IsStale), string(OtherErr), string(Exclusive), string(Revocable), string(Undisturbed), string(Fenced),
	} {
		assert.Contains(t, string(page), "`"+word+"`")
	}
}
