package conformance

import (
	"encoding/json"
	"flag"
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
		call(0, opLock, end, end+1), sample(0, end+2, end+3, 1<<40), sample(0, end+50, end+51, 1<<40), call(0, opUnlock, end+60, end+61),
		call(1, opLock, end+10, end+11), sample(1, end+12, end+13, 1<<41), call(1, opUnlock, end+20, end+21),
	)
	more := simulated(rand.New(rand.NewPCG(8, 0)), 300)
	for _, e := range more.Events {
		e.Call, e.Return = e.Call+(end+100)*1e6, e.Return+(end+100)*1e6
		if e.Token > 0 {
			e.Token += 1 << 42
		}
		h.Events = append(h.Events, e)
	}
	j := h.check()
	require.Equal(t, porcupine.Illegal, j.result)
	assert.Len(t, j.witness, 2, "%s", lines(h, j.witness))
}

// TestRefusal saves what it speaks of, so that it can be looked at, and checked again.
func TestRefusal(t *testing.T) {
	dir := t.TempDir()
	before := *evidenceDir
	*evidenceDir = dir
	t.Cleanup(func() { *evidenceDir = before })
	h := script{
		call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 100, 110),
		call(1, opLock, 20, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50), call(1, opLock, 51, 52, otherErr),
	}.played(exclusive)
	h.Seed, h.Faults = 42, []faultRecord{{Kind: "Through", What: "1: cut off", From: 15e6, To: 50e6}}
	text := h.refusal(h.check()).Error()
	for _, part := range []string{"token 5", "token 6", "0.0200 s to 0.0300 s: 1, Lock: nil", "1: cut off", "-conformance.seed=42", dir} {
		assert.Contains(t, text, part)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.html"))
	require.NoError(t, err)
	require.Len(t, pages, 1)
	page, err := os.ReadFile(pages[0])
	require.NoError(t, err)
	assert.Contains(t, string(page), "cut off")
	again, err := loadHistory(strings.TrimSuffix(pages[0], "html") + "json")
	require.NoError(t, err)
	want, err := json.Marshal(h)
	require.NoError(t, err)
	got, err := json.Marshal(again)
	require.NoError(t, err)
	assert.JSONEq(t, string(want), string(got))
	assert.Equal(t, porcupine.Illegal, again.check().result)
}

var saved = flag.String("history", "", "a history that was saved, to be checked again")

// TestSavedHistory checks what -history names: go test ./conformance -run SavedHistory -history=….json
func TestSavedHistory(t *testing.T) {
	if *saved == "" {
		t.Skip("no -history is given")
	}
	h, err := loadHistory(*saved)
	require.NoError(t, err)
	j := h.check()
	t.Logf("%s, of %d operations:\n%s", j.result, j.operations, lines(h, j.witness))
	assert.Equal(t, porcupine.Ok, j.result)
}

// loadHistory reads what save wrote.
func loadHistory(file string) (*history, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	h := &history{}
	return h, json.Unmarshal(data, h)
}
