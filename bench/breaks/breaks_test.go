package breaks

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

// TestBreaks_areLookedFor requires that each test and scenario in the tables exists.
func TestBreaks_areLookedFor(t *testing.T) {
	var scenarios []string
	for _, s := range conformance.Scenarios() {
		scenarios = append(scenarios, s.Name)
	}
	names := make(map[string]bool)
	for _, b := range slices.Concat(All(), Reported) {
		assert.False(t, b.Name != "" && names[b.Name], "two breaks are called %s", b.Name)
		names[b.Name] = true
		for _, name := range b.Looks {
			if strings.Contains(name, " ") {
				assert.Contains(t, scenarios, name, b.What)
				continue
			}
			dir, test, _ := strings.Cut(name, ".")
			assert.True(t, declared(t, filepath.Join("..", "..", dirOf(dir)), test), "no test %s, which looks for %q", name, b.What)
		}
	}
	for name := range guards {
		assert.True(t, names[name], "no break is called %s", name)
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

func TestFind(t *testing.T) {
	whole, err := Find("redsync-stopped-node-delays-unlock")
	require.NoError(t, err)
	part, err := Find("redsync-stopped-node")
	require.NoError(t, err)
	assert.Equal(t, whole.Name, part.Name)
	assert.Equal(t, "redsync", part.Lock)
	_, err = Find("redsync-")
	require.ErrorContains(t, err, "ambiguous")
	_, err = Find("nothing")
	require.ErrorContains(t, err, "no break is called")
}

// What go test prints tells a test that failed from one that did not compile, did not run, or was
// skipped.
func TestVerdict(t *testing.T) {
	const output = "=== RUN   TestA\n--- FAIL: TestA (0.01s)\n    --- PASS: TestA/b (0.00s)\n--- SKIP: TestC (0.00s)\nFAIL\n"
	assert.Equal(t, "FAIL", verdict(output, "TestA"))
	assert.Equal(t, "SKIP", verdict(output, "TestC"))
	assert.Empty(t, verdict(output, "Test"))
	assert.Equal(t, "FAIL", verdict("=== RUN   TestA\npanic: close of nil channel\n", "TestA"))
	assert.Empty(t, verdict("# pkg\n./a_test.go:3: undefined: x\nFAIL\tpkg [build failed]\n", "TestA"))
}
