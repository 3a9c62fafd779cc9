package history

import (
	"encoding/json"
	"fmt"
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
	var s script
	at := int64(0)
	holds := func(n int) {
		for range n {
			c, token := int(at/10)%2, uint64(at)+1
			s = append(s, call(c, OpLock, at, at+2), sample(c, at+3, at+4, token), call(c, OpUnlock, at+5, at+6))
			at += 10
		}
	}
	holds(1000)
	s = append(s,
		call(0, OpLock, at, at+1), sample(0, at+2, at+3, uint64(at)+1), sample(0, at+50, at+51, uint64(at)+1), call(0, OpUnlock, at+60, at+61),
		call(1, OpLock, at+10, at+11), sample(1, at+12, at+13, uint64(at)+2), call(1, OpUnlock, at+20, at+21),
	)
	at += 100
	holds(300)
	h := s.played(Exclusive)
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
	file, timeline, err := h.Save(t.TempDir(), j)
	require.NoError(t, err)
	page, err := os.ReadFile(timeline)
	require.NoError(t, err)
	assert.Contains(t, string(page), "cut off")
	assert.Contains(t, string(page), "a random &lt;history&gt;")
	assert.Equal(t, 2, strings.Count(string(page), `<text class="alarm" x="0"`), "the two holds that contradict each other")
	again, err := Read(file)
	require.NoError(t, err)
	want, err := json.Marshal(h)
	require.NoError(t, err)
	got, err := json.Marshal(again)
	require.NoError(t, err)
	assert.JSONEq(t, string(want), string(got))
	assert.Equal(t, j, again.Check())

	h = script{call(0, OpLock, 0, 10), call(0, OpUnlock, 20, 30), call(0, OpLock, 60, 70, OtherErr)}.played(Exclusive)
	h.Faults = []Fault{{What: "server silent", From: 50e6, To: 80e6}}
	_, timeline, err = h.Save(t.TempDir(), h.Check())
	require.NoError(t, err)
	page, err = os.ReadFile(timeline)
	require.NoError(t, err)
	assert.Contains(t, string(page), "server silent", "after the last hold of a history that is kept")
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
	one := holds(0, OpLock, 0, 10, 5, 20)
	for _, c := range []struct {
		what  string
		then  script
		parts int
		legal bool
	}{
		{"one after the other", holds(1, OpLock, 40, 50, 6, 60), 2, true},
		{"a token falls from part to part", holds(1, OpLock, 40, 50, 4, 60), 2, false},
		{"one waits meanwhile", holds(1, OpLock, 5, 50, 6, 60), 1, true},
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
	j := h.check(limit)
	assert.True(t, j.Undecided() && !j.Refused())
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
			_, err = h.Draw(filepath.Join(t.TempDir(), "history.json"), j)
			require.NoError(t, err)
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

// script writes a history by hand: times are milliseconds.
type script []Event

func call(client int, op string, from, to int64, returned ...ErrKind) Event {
	e := Event{Client: client, Op: op, Call: from * 1e6, Return: to * 1e6}
	if len(returned) > 0 {
		e.Err = returned[0]
	}
	return e
}

func sample(client int, from, to int64, token uint64) Event {
	return Event{Client: client, Op: OpToken, Call: from * 1e6, Return: to * 1e6, Token: token}
}

// begins is a hold that its client sees: a Lock, or an RLock, that is granted, and its token.
func begins(client int, op string, from, granted int64, token uint64) script {
	return script{call(client, op, from, granted), sample(client, granted+1, granted+2, token)}
}

// holds is a hold that begins so, and the call of its Unlock.
func holds(client int, op string, from, granted int64, token uint64, unlock int64) script {
	return append(begins(client, op, from, granted, token), call(client, OpUnlock, unlock, unlock+10))
}

// played is the history of clients 0 to 2 of one name, and client 3 of another; 2 renews.
func (s script) played(d Demand) *History {
	h := &History{Demand: d, Events: s}
	for i, name := range []string{"x", "x", "x", "y"} {
		h.Clients = append(h.Clients, Client{Who: fmt.Sprint(i), Name: name, TTL: 300 * time.Millisecond, Renews: i == 2})
	}
	return h
}

// Each step of the model: the state after it, or nil if no lock takes it. In some histories another
// rule refuses the same.
func TestMutex_steps(t *testing.T) {
	free, held := mutex{last: 5}, mutex{holder: 1, token: 5, last: 5}
	shared, phase := mutex{shares: "<1><2>", token: 5, last: 5, phase: 5}, mutex{last: 5, phase: 5}
	for _, c := range []struct {
		what string
		from mutex
		move move
		to   *mutex
	}{
		{"a writer", free, move{kind: takes, hold: 3, token: 6}, &mutex{holder: 3, token: 6, last: 6}},
		{"a writer whose token is not known", free, move{kind: takes, hold: 3}, &mutex{holder: 3, last: 5}},
		{"a writer with the last token", free, move{kind: takes, hold: 3, token: 5}, nil},
		{"a writer beside one", held, move{kind: takes, hold: 3, token: 6}, nil},
		{"a writer beside shares", shared, move{kind: takes, hold: 3, token: 6}, nil},
		{"a writer after shares", phase, move{kind: takes, hold: 3, token: 6}, &mutex{holder: 3, token: 6, last: 6}},
		{"a share", free, move{kind: takes, hold: 3, share: true, token: 6}, &mutex{shares: "<3>", token: 6, last: 6, phase: 6}},
		{"a share with the writer's token", free, move{kind: takes, hold: 3, share: true, token: 5}, nil},
		{"a share with the token of the phase", phase, move{kind: takes, hold: 3, share: true, token: 5}, &mutex{shares: "<3>", token: 5, last: 5, phase: 5}},
		{"a share beside others", shared, move{kind: takes, hold: 3, share: true, token: 5}, &mutex{shares: "<1><2><3>", token: 5, last: 5, phase: 5}},
		{"a share beside others, with a token of its own", shared, move{kind: takes, hold: 3, share: true, token: 6}, nil},
		{"a share beside a writer", held, move{kind: takes, hold: 3, share: true, token: 6}, nil},
		{"a share beside a writer, whose token is not known", held, move{kind: takes, hold: 3, share: true}, nil},
		{"the holder", held, move{kind: confirms, hold: 1, token: 5}, &held},
		{"another than the holder", held, move{kind: confirms, hold: 2, token: 5}, nil},
		{"one of the shares", shared, move{kind: confirms, hold: 2, token: 5}, &shared},
		{"another token", held, move{kind: confirms, hold: 1, token: 6}, nil},
		{"a downgrade", held, move{kind: weakens, hold: 1}, &mutex{shares: "<1>", token: 5, last: 5, phase: 5}},
		{"a downgrade by another", held, move{kind: weakens, hold: 2}, nil},
		{"an Unlock", held, move{kind: ends, hold: 1}, &free},
		{"an Unlock by another", held, move{kind: ends, hold: 2}, nil},
		{"an Unlock of a share", shared, move{kind: ends, hold: 2}, &mutex{shares: "<1>", token: 5, last: 5, phase: 5}},
		{"an Unlock of the last share", mutex{shares: "<1>", token: 5, last: 5, phase: 5}, move{kind: ends, hold: 1}, &phase},
		{"a larger token", free, move{kind: mints, token: 6}, &mutex{last: 6}},
		{"a token again", free, move{kind: mints, token: 5}, nil},
		{"what no lock may say", free, move{kind: breaks}, nil},
	} {
		to, ok := c.from.step(c.move)
		assert.Equal(t, c.to != nil, ok, c.what)
		if c.to != nil {
			assert.Equal(t, *c.to, to, c.what)
		}
	}
}

// Each sentence of the contract that a history can break, kept and broken.
func TestModel(t *testing.T) {
	for _, c := range []struct {
		what   string
		demand Demand
		legal  bool
		events []script
	}{
		{"one after the other", Exclusive, true, []script{holds(0, OpLock, 0, 10, 5, 20), holds(1, OpLock, 5, 35, 6, 40)}},
		{"two at once", Exclusive, false, []script{holds(0, OpLock, 0, 10, 5, 100), holds(1, OpLock, 20, 30, 6, 40)}},
		{"two at once, of two names", Exclusive, true, []script{holds(0, OpLock, 0, 10, 5, 100), holds(3, OpLock, 20, 30, 5, 40)}},
		{"the next one gets it while Unlock is under way", Exclusive, true, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpUnlock, 20, 100)}, holds(1, OpLock, 30, 40, 6, 50),
		}},
		{"the next one gets it before Unlock is called", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpUnlock, 50, 100)}, holds(1, OpLock, 30, 40, 6, 60),
		}},
		{"two shares at once, and a writer after them", Exclusive, true, []script{
			holds(0, OpRLock, 0, 10, 5, 100),
			{call(1, OpTryRLock, 20, 30), sample(1, 31, 32, 5), call(1, OpUnlock, 40, 50)},
			holds(1, OpLock, 60, 120, 6, 130),
		}},
		{"shares of one phase, one after the other", Exclusive, true, []script{holds(0, OpRLock, 0, 10, 5, 20), holds(1, OpRLock, 40, 50, 5, 60)}},
		{"a share with the token of the writer before it", Exclusive, false, []script{
			holds(0, OpLock, 0, 10, 5, 20), holds(1, OpRLock, 40, 50, 5, 60),
		}},
		{"a share with the token of the shares before the writer before it", Exclusive, false, []script{
			holds(0, OpRLock, 0, 10, 5, 20), begins(2, OpLock, 31, 32, 6), {call(2, OpUnlock, 35, 36)}, holds(1, OpRLock, 40, 50, 5, 60),
		}},
		{"a downgrade, and a share beside it", Exclusive, true, []script{
			begins(0, OpLock, 0, 10, 5),
			{call(0, OpDowngrade, 15, 25), sample(0, 26, 27, 5), call(0, OpUnlock, 100, 110), call(1, OpRLock, 5, 22), sample(1, 31, 32, 5), call(1, OpUnlock, 120, 130)},
			holds(2, OpRLock, 140, 150, 5, 160),
		}},
		{"a share before the downgrade", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpDowngrade, 25, 30), call(0, OpUnlock, 100, 110)}, holds(1, OpRLock, 5, 22, 5, 120),
		}},
		{"a writer beside a downgrade", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpDowngrade, 15, 25), call(0, OpUnlock, 100, 110)}, holds(1, OpLock, 12, 30, 6, 40),
		}},
		{"a downgrade of nothing", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpUnlock, 13, 14), call(0, OpDowngrade, 15, 25)},
		}},
		{"an equal token", Exclusive, false, []script{holds(0, OpLock, 0, 10, 5, 20), holds(1, OpLock, 31, 35, 5, 40)}},
		{"tokens with a gap, for a Lock of which nobody knows", Exclusive, true, []script{
			holds(0, OpLock, 0, 10, 5, 20),
			{call(1, OpLock, 31, 35, OtherErr), call(1, OpLock, 36, 38), sample(1, 39, 39, 9), call(1, OpUnlock, 40, 50)},
		}},
		{"a token that changes", Exclusive, false, []script{begins(0, OpLock, 0, 10, 5), {sample(0, 13, 14, 6), call(0, OpUnlock, 20, 30)}}},
		{"an expiry that was told, and a new holder", Exclusive, true, []script{
			begins(0, OpLock, 0, 10, 5),
			{sample(0, 290, 291, 5), sample(0, 305, 306, 0), call(0, OpUnlock, 400, 410, IsLost)},
			holds(1, OpLock, 20, 301, 6, 310),
		}},
		{"believed after the new holder has it", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5),
			{sample(0, 304, 304, 5), sample(0, 305, 306, 0), call(0, OpUnlock, 400, 410, IsLost)},
			holds(1, OpLock, 20, 301, 6, 310),
		}},
		{"a token after the loss", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {sample(0, 305, 306, 0), sample(0, 307, 308, 5), call(0, OpUnlock, 400, 410, IsLost)},
		}},
		{"Extend revives", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpLost, 300, 300), call(0, OpExtend, 307, 308), call(0, OpUnlock, 400, 410, IsLost)},
		}},
		{"Unlock says nil after the loss", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpExtend, 300, 305, IsLost), call(0, OpUnlock, 400, 410)},
		}},
		{"the loss is seen while Extend is under way, that says nil", Exclusive, true, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpExtend, 200, 305), sample(0, 303, 304, 0), call(0, OpUnlock, 310, 320, IsLost)},
		}},
		{"the token is 0 while Unlock is under way", Exclusive, true, []script{
			holds(0, OpLock, 0, 10, 5, 20), {sample(0, 19, 25, 0), sample(0, 25, 26, 0), call(0, OpLost, 27, 27)},
		}},
		{"the token is there while Unlock is under way", Exclusive, true, []script{
			begins(0, OpLock, 0, 10, 5), {sample(0, 19, 31, 5), call(0, OpUnlock, 20, 30), sample(0, 25, 32, 5)},
		}},
		{"a token after Unlock", Exclusive, false, []script{holds(0, OpLock, 0, 10, 5, 20), {sample(0, 31, 31, 5)}}},
		{"a token after an Unlock that failed", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpUnlock, 20, 30, OtherErr), sample(0, 31, 31, 5)},
		}},
		{"a new holder during an Unlock that failed", Exclusive, true, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpUnlock, 20, 90, OtherErr)}, holds(1, OpLock, 30, 40, 6, 50),
		}},
		{"a Locker without tokens", Exclusive, true, []script{
			{call(0, OpLock, 0, 10), sample(0, 11, 12, 0), call(0, OpExtend, 13, 14), call(0, OpUnlock, 20, 30)},
		}},
		{"a downgrade of a share", Exclusive, true, []script{
			begins(0, OpRLock, 0, 10, 5), {call(0, OpDowngrade, 13, 14), call(0, OpUnlock, 20, 30)},
		}},
		{"a lower token, after a hold whose token was never seen", Exclusive, false, []script{
			holds(0, OpLock, 0, 10, 5, 20),
			{call(1, OpLock, 25, 32), call(1, OpUnlock, 33, 42)},
			begins(0, OpLock, 40, 43, 4),
			{call(0, OpUnlock, 46, 47)},
		}},
		{"a lower token, long after a hold whose token was never seen", Exclusive, false, []script{
			holds(0, OpLock, 0, 10, 5, 20), {call(1, OpLock, 25, 32), call(1, OpUnlock, 33, 42)}, holds(0, OpLock, 50, 53, 4, 60),
		}},
		{"a share with the token of a downgrade before it", Exclusive, true, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpDowngrade, 13, 14), call(0, OpUnlock, 20, 30)}, holds(1, OpRLock, 40, 50, 5, 60),
		}},
		{"renewed for long after another had the lock", Revocable, true, []script{
			holds(1, OpLock, 0, 10, 4, 20), begins(2, OpLock, 31, 32, 5), {sample(2, 5011, 5012, 5), call(2, OpUnlock, 5013, 5014)},
		}},
		{"held, by one who never unlocks", Undisturbed, true, []script{begins(0, OpLock, 0, 10, 5), {call(1, OpTryLock, 500, 501, IsHeld)}}},
		{"believed a little longer than a TTL after another got it", Revocable, true, []script{
			begins(0, OpLock, 0, 10, 5),
			{sample(0, 400, 401, 5), call(0, OpUnlock, 402, 403, IsLost)},
			begins(1, OpLock, 13, 20, 6),
			{call(1, OpUnlock, 410, 411)},
		}},
		{"a token that changes, of a lock that loses its data", Fenced, false, []script{
			begins(0, OpLock, 0, 10, 5), {sample(0, 13, 14, 6), call(0, OpUnlock, 20, 30)},
		}},
		{"a token after the loss, of a lock that loses its data", Fenced, false, []script{
			begins(0, OpLock, 0, 10, 5), {sample(0, 305, 306, 0), sample(0, 307, 308, 5)},
		}},
		{"a token between two that tell of the loss", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {sample(0, 305, 306, 0), sample(0, 307, 308, 5), sample(0, 309, 310, 0)},
		}},
		{"a token after a Downgrade that told of the loss", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpDowngrade, 300, 305, IsLost), sample(0, 307, 308, 5)},
		}},
		{"two Unlocks at once say nil", Exclusive, false, []script{holds(0, OpLock, 0, 10, 5, 20), {call(0, OpUnlock, 25, 35)}}},
		{"Extend without a hold says ErrLost", Exclusive, false, []script{{call(0, OpExtend, 0, 1, IsLost)}}},
		{"a TTL that is over, and extended later", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {sample(0, 1011, 1012, 5), call(0, OpExtend, 1013, 1014)},
		}},
		{"a token before Lock", Exclusive, false, []script{{sample(0, 1, 2, 5)}}},
		{"a token after a Lock that failed", Exclusive, false, []script{{call(0, OpLock, 0, 1, OtherErr), sample(0, 1, 2, 5)}}},
		{"a second Unlock says nil", Exclusive, false, []script{holds(0, OpLock, 0, 10, 5, 20), {call(0, OpUnlock, 31, 32)}}},
		{"a second Unlock says ErrNotHeld", Exclusive, true, []script{holds(0, OpLock, 0, 10, 5, 20), {call(0, OpUnlock, 31, 32, IsNotHeld)}}},
		{"a second Unlock cannot ask", Exclusive, true, []script{holds(0, OpLock, 0, 10, 5, 20), {call(0, OpUnlock, 31, 32, OtherErr)}}},
		{"Extend without a hold says nil", Exclusive, false, []script{{call(0, OpExtend, 0, 1)}}},
		{"Extend of a hold says ErrNotHeld", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpExtend, 13, 14, IsNotHeld), call(0, OpUnlock, 20, 30)},
		}},
		{"Unlock of a lost hold says ErrNotHeld", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpLost, 300, 300), call(0, OpUnlock, 310, 320, IsNotHeld)},
		}},
		{"a Lock whose token was never seen is a hold, too", Exclusive, false, []script{
			holds(0, OpLock, 0, 10, 5, 100), {call(1, OpLock, 20, 30), call(1, OpExtend, 31, 40), call(1, OpUnlock, 41, 50)},
		}},
		{"lost before its token was seen", Exclusive, true, []script{
			{call(0, OpLock, 0, 400), sample(0, 401, 401, 0), call(0, OpUnlock, 402, 403, IsLost)},
			begins(1, OpLock, 350, 380, 6),
			{call(1, OpUnlock, 500, 600)},
		}},
		{"a process that slept with its answers on the way", Exclusive, true, []script{
			begins(0, OpLock, 0, 10, 5),
			{call(0, OpExtend, 200, 900), sample(0, 201, 901, 5), sample(0, 902, 903, 0), call(0, OpUnlock, 904, 905, IsLost)},
			begins(1, OpLock, 20, 510, 6),
			{call(1, OpUnlock, 2000, 2001, IsLost)},
		}},
		{"a TTL that is over, and no loss told", Exclusive, false, []script{
			begins(0, OpLock, 0, 10, 5), {sample(0, 1011, 1012, 5), call(0, OpUnlock, 1013, 1014, IsLost)},
		}},
		{"a TTL that is over, and Unlock says nil", Exclusive, false, []script{begins(0, OpLock, 0, 10, 5), {call(0, OpUnlock, 1013, 1014)}}},
		{"a TTL that was extended, or may have been", Exclusive, true, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpExtend, 250, 600, OtherErr), sample(0, 1300, 1301, 5), call(0, OpUnlock, 1302, 1303)},
		}},
		{"a TTL that is renewed", Exclusive, true, []script{begins(2, OpLock, 0, 10, 5), {sample(2, 5011, 5012, 5), call(2, OpUnlock, 5013, 5014)}}},
		{"revoked, and believed for a TTL", Revocable, true, []script{
			begins(0, OpLock, 0, 10, 5), {sample(0, 200, 201, 5), call(0, OpUnlock, 210, 220, IsLost)}, holds(1, OpLock, 20, 30, 6, 40),
		}},
		{"revoked, and believed for longer", Revocable, false, []script{
			begins(2, OpLock, 0, 10, 5), {sample(2, 1100, 1101, 5), call(2, OpUnlock, 1110, 1120, IsLost)}, holds(1, OpLock, 20, 30, 6, 40),
		}},
		{"revoked, and extended when another has it", Revocable, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpExtend, 200, 201), call(0, OpUnlock, 210, 220, IsLost)}, holds(1, OpLock, 20, 30, 6, 40),
		}},
		{"revoked, and the token comes again", Revocable, false, []script{
			begins(0, OpLock, 0, 10, 5), {call(0, OpUnlock, 210, 220, IsLost)}, holds(1, OpLock, 20, 30, 5, 40),
		}},
		{"data lost, two at once, and the tokens rise", Fenced, true, []script{holds(0, OpLock, 0, 10, 5, 210), holds(1, OpLock, 20, 30, 6, 40)}},
		{"data lost, and a token comes again", Fenced, false, []script{holds(0, OpLock, 0, 10, 5, 210), holds(1, OpLock, 20, 30, 5, 40)}},
		{"an early end of which only Unlock tells, and a new holder before", Undisturbed, false, []script{
			{call(0, OpLock, 0, 10), call(0, OpUnlock, 100, 110, IsLost), call(1, OpLock, 20, 30), call(1, OpUnlock, 40, 50)},
		}},
		{"the same, with faults", Exclusive, true, []script{
			{call(0, OpLock, 0, 10), call(0, OpUnlock, 100, 110, IsLost), call(1, OpLock, 20, 30), call(1, OpUnlock, 40, 50)},
		}},
		{"an early end of which only Extend tells, and a new holder before", Undisturbed, false, []script{
			{call(0, OpLock, 0, 10), call(0, OpExtend, 100, 110, IsLost), call(0, OpUnlock, 120, 130, IsLost), call(1, OpLock, 20, 30), call(1, OpUnlock, 40, 50)},
		}},
		{"an early end after an Extend of which only Unlock tells", Undisturbed, false, []script{
			{call(0, OpLock, 0, 10), call(0, OpExtend, 140, 150), call(0, OpUnlock, 280, 290, IsLost), call(1, OpLock, 20, 270), call(1, OpUnlock, 275, 276)},
		}},
		{"a new holder while an Unlock in doubt is under way", Undisturbed, true, []script{
			{call(0, OpLock, 0, 10), call(0, OpUnlock, 15, 110, IsLost), call(1, OpLock, 20, 30), call(1, OpUnlock, 40, 50)},
		}},
		{"a new holder when no more is assured", Undisturbed, true, []script{
			{call(0, OpLock, 0, 10), call(0, OpUnlock, 200, 210, IsLost), call(1, OpLock, 20, 151), call(1, OpUnlock, 152, 153)},
		}},
		{"an early end of which the token tells, and a new holder before its time", Undisturbed, false, []script{
			begins(0, OpLock, 0, 10, 5), {sample(0, 15, 16, 0), call(0, OpUnlock, 100, 110, IsLost)}, holds(1, OpLock, 20, 30, 6, 40),
		}},
		{"an early end of which the token tells, and a new holder when no more is assured", Undisturbed, true, []script{
			begins(0, OpLock, 0, 10, 5),
			{sample(0, 15, 16, 0), call(0, OpUnlock, 200, 210, IsLost)},
			begins(1, OpLock, 20, 151, 6),
			{call(1, OpUnlock, 154, 155)},
		}},
		{"a TryLock that is refused though nobody held", Undisturbed, false, []script{{call(0, OpTryLock, 0, 10, IsHeld)}}},
		{"the same, with faults", Exclusive, true, []script{{call(0, OpTryLock, 0, 10, IsHeld)}}},
		{"two hold, and before that a TryLock was refused", Undisturbed, false, []script{
			{call(2, OpTryLock, 0, 10, IsHeld)}, begins(0, OpLock, 5000, 5010, 5), begins(1, OpLock, 5013, 5014, 6), {sample(0, 5017, 5018, 5)},
		}},
		{"a TryLock that is refused after an Unlock", Undisturbed, false, []script{
			{call(0, OpLock, 0, 10), call(0, OpUnlock, 20, 30), call(1, OpTryLock, 31, 40, IsHeld)},
		}},
		{"a TryLock that is refused while another takes the lock", Undisturbed, true, []script{
			{call(0, OpTryLock, 0, 10, IsHeld), call(1, OpLock, 5, 20), call(1, OpUnlock, 30, 40)},
		}},
		{"a TryLock that is refused soon after a Lock that gave up", Undisturbed, true, []script{
			{call(1, OpLock, 0, 10, OtherErr), call(0, OpTryLock, 20, 30, IsHeld)},
		}},
		{"a TryLock that is refused soon after an Unlock in doubt", Undisturbed, true, []script{
			{call(0, OpLock, 0, 10), call(0, OpUnlock, 20, 30, OtherErr), call(1, OpTryLock, 40, 50, IsHeld)},
		}},
		{"never unlocked", Exclusive, false, []script{begins(0, OpLock, 0, 10, 5), holds(1, OpLock, 20, 30, 6, 40)}},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := slices.Concat(c.events...).played(c.demand)
			got := h.Check()
			if c.legal {
				require.Equal(t, porcupine.Ok, got.result, "%s", lines(h, got.witness))
				return
			}
			require.Equal(t, porcupine.Illegal, got.result)
			assert.Equal(t, strings.HasPrefix(c.what, "a TryLock that is refused"), got.InDoubt)
			assert.Equal(t, porcupine.Illegal, legal(got.witness, 0), "what is shown is wrong by itself")
		})
	}
}

func lines(h *History, holds []ops) string { return strings.Join(h.lines(holds), "\n") }
