package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	page, err := os.ReadFile("../../docs/histories.md")
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
