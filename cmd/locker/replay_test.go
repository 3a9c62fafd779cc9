package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A history that was kept is judged again, and drawn beside its file.
func TestCheck_replay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code int
		says string
	}{
		"two-holders":           {exitBroken, "broken: there were 7 operations"},
		"good-readers-together": {0, "kept: one lock can have had the history"},
	} {
		saved, err := os.ReadFile(filepath.Join("..", "..", "internal", "history", "testdata", name+".json"))
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "history.json")
		require.NoError(t, os.WriteFile(file, saved, 0o600))
		p := begin(t, "check", "--replay", file)
		require.Equal(t, c.code, p.wait(), "%s", p.stderr)
		assert.Contains(t, p.stdout.String(), c.says)
		page, err := os.ReadFile(filepath.Join(filepath.Dir(file), "history.timeline.html"))
		require.NoError(t, err)
		assert.Contains(t, string(page), "client")
	}
	p := begin(t, "check", "--replay", filepath.Join(t.TempDir(), "none.json"))
	assert.Equal(t, exitUsage, p.wait())
	assert.Contains(t, p.stderr.String(), "none.json")
}
