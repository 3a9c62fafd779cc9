package locker_test

import (
	"go/build"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program that takes a lock compiles the backend that it chose, and nothing else of anybody's.
func TestRootPackage_importsTheStandardLibraryAlone(t *testing.T) {
	const internal = "github.com/go-locker/locker/internal/"
	for dirs, i := []string{"."}, 0; i < len(dirs); i++ {
		p, err := build.ImportDir(dirs[i], 0)
		require.NoError(t, err)
		for _, path := range p.Imports {
			if own, ok := strings.CutPrefix(path, internal); ok {
				dirs = append(dirs, "internal/"+own)
				continue
			}
			first, _, _ := strings.Cut(path, "/")
			assert.NotContains(t, first, ".", "%s imports %s", dirs[i], path)
		}
	}
}
