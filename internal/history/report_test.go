package history

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
