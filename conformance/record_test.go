package conformance_test

import (
	"context"
	"flag"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/tb"
)

// It is not parallel, for the flag is every scenario's.
func TestRecord_leavesWhatAScenarioDid(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, flag.Set("conformance.record", dir))
	t.Cleanup(func() { _ = flag.Set("conformance.record", "") })
	const name = "a late write with the token of a lost hold is refused"
	scenarios := conformance.Scenarios()
	s := scenarios[slices.IndexFunc(scenarios, func(s conformance.Scenario) bool { return s.Name == name })]
	in := tb.New(context.Background(), nil)
	require.NoError(t, in.Run(func() { conformance.Examine(in, s, memory()) }))
	in.End()

	found, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.Len(t, found, 1, "the last trial's")
	h, err := history.Read(found[0])
	require.NoError(t, err)
	assert.Equal(t, name, h.Scenario)
	assert.Equal(t, "kept", h.Outcome)
	assert.False(t, h.Check().Refused())
	writes := map[history.ErrKind]int{}
	for _, e := range h.Events {
		if e.Op == history.OpWrite && e.Fenced {
			writes[e.Err]++
		}
	}
	assert.Equal(t, map[history.ErrKind]int{history.NoErr: 2, history.IsStale: 2}, writes, "B's, and A's late ones")
}
