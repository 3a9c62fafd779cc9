package docs_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
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

// A backend that no part of make nightly names is tested in full by nobody.
func TestNightly_hasEveryBackend(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	workflow, err := os.ReadFile("../.github/workflows/nightly.yml")
	require.NoError(t, err)
	for _, b := range backends.All[1:] { // memory's suite is a test of package conformance
		assert.FileExists(t, "../"+b.Package+"/conformance_test.go")
		assert.Contains(t, string(makefile), "\nnightly-"+b.Package+": ")
		assert.Contains(t, string(makefile), " nightly-soak-"+b.Package)
	}
	for _, part := range regexp.MustCompile(`nightly-([a-z-]+)[ :]`).FindAllStringSubmatch(string(makefile), -1) {
		assert.Contains(t, string(workflow), "          - "+strings.TrimSuffix(part[1], "-")+"\n")
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
