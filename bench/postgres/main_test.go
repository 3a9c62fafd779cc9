package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

func TestRun(t *testing.T) {
	testserver.Need(t, "postgres", "initdb")
	file := filepath.Join(t.TempDir(), "raw.json")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-rounds", "1", "-duration", "200ms", "-warm-up", "100ms", "-alone", "1", "-waiters", "4", "-json", file}, &out, t.Output()))
	assert.Equal(t, 2+2*len(kinds), strings.Count(out.String(), "\n"), out.String())
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var cells []Cell
	require.NoError(t, json.Unmarshal(raw, &cells))
	for _, c := range cells {
		assert.Positive(t, c.median(), "%s, %d", c.Lock, c.Goroutines)
		assert.Positive(t, c.Connections)
	}
}
