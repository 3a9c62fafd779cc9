package docs_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A page that stands for a folder of its name leads to every page in it.
func TestFolders_areOnThePageOfTheirName(t *testing.T) {
	for _, folder := range []string{"guarantees", "conformance", "other-libraries"} {
		index, err := os.ReadFile(folder + ".md")
		require.NoError(t, err)
		pages, err := fs.Glob(os.DirFS("."), folder+"/*.md")
		require.NoError(t, err)
		assert.Greater(t, len(pages), 3, folder)
		for _, page := range pages {
			if !strings.Contains(string(index), "]("+page) {
				t.Errorf("%s.md: no link to %s", folder, page)
			}
		}
	}
}
