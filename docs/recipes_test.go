package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The Go code of a page of recipes is that of a program that is tested.
func TestRecipes_areThoseOfTheExample(t *testing.T) {
	files, err := filepath.Glob("../bench/jobs/*.go")
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(source)
	}
	page, err := os.ReadFile("recipes-jobs.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		assert.Contains(t, all.String(), string(block[1]))
	}
}
