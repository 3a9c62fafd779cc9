package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/conformance"
)

// TestKnownBreaks_areLookedFor requires that each test and scenario in the table exists.
func TestKnownBreaks_areLookedFor(t *testing.T) {
	var scenarios []string
	for _, s := range conformance.Scenarios() {
		scenarios = append(scenarios, s.Name)
	}
	for _, l := range knownBreaks {
		assert.NotEmpty(t, slices.Concat(l.scenarios, l.tests), l.what)
		for _, name := range l.scenarios {
			assert.Contains(t, scenarios, name)
		}
		for _, test := range l.tests {
			dir, name, _ := strings.Cut(test, ".")
			if moved, ok := map[string]string{"core": "internal/test/core", "redisscript": "internal/redisscript"}[dir]; ok {
				dir = moved
			}
			assert.True(t, declared(t, filepath.Join("..", "..", dir), name), "no test %s", test)
		}
	}
}

func declared(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return strings.Contains(string(text), "func "+test+"(")
	})
}
