package docs_test

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/backends"
)

// What nobody updates has its vulnerabilities for good.
func TestDependabot_looksAfterEveryModule(t *testing.T) {
	config, err := os.ReadFile("../.github/dependabot.yml")
	require.NoError(t, err)
	modules := find(t, "go.mod")
	assert.Greater(t, len(modules), 8)
	for dir := range modules {
		assert.Contains(t, string(config), "\n      - "+path.Join("/", dir)+"\n", "no entry for the module in %s", dir)
	}
}

// A backend whose suite stands in no job is tested by nobody but us.
func TestWorkflow_runsTheSuiteOfEveryBackend(t *testing.T) {
	test, err := os.ReadFile("../.github/workflows/test.yml")
	require.NoError(t, err)
	soak, err := os.ReadFile("../.github/workflows/soak.yml")
	require.NoError(t, err)
	for _, b := range backends.All[1:] { // memory's suite is a test of package conformance
		assert.FileExists(t, "../"+b.Package+"/conformance_test.go")
		if !b.Module { // whose suite is in check-modules
			assert.Contains(t, string(test), " SUITES="+b.Package+"\n")
		}
		assert.Regexp(t, `backend: \[.*\b`+b.Package+`\b.*\]`, string(soak))
	}
}

// find returns the folders that have a file of that name.
func find(t *testing.T, name string) map[string]bool {
	t.Helper()
	dirs := map[string]bool{}
	require.NoError(t, fs.WalkDir(os.DirFS(".."), ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.Name() == name:
			dirs[path.Dir(file)] = true
		}
		return nil
	}))
	return dirs
}
