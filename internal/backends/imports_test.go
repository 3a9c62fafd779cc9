package backends_test

import (
	"go/build"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/backends"
)

// A program that takes a lock compiles the backend that it chose, and nothing else of anybody's.
func TestRootPackage_importsTheStandardLibraryAlone(t *testing.T) {
	const module = "github.com/go-locker/locker/"
	for dirs, i := []string{"."}, 0; i < len(dirs); i++ {
		p, err := build.ImportDir("../../"+dirs[i], 0)
		require.NoError(t, err)
		for _, path := range p.Imports {
			if own, ok := strings.CutPrefix(path, module); ok {
				dirs = append(dirs, own)
				continue
			}
			first, _, _ := strings.Cut(path, "/")
			assert.NotContains(t, first, ".", "%s imports %s", dirs[i], path)
		}
	}
}

// What a program with that import links. The second is a package of the adapter's client library, and of nobody else's.
func TestAdapters_compileNoOther(t *testing.T) {
	const module = "github.com/go-locker/locker/"
	adapters := []string{"all"}
	for _, b := range backends.Here() {
		adapters = append(adapters, b.Package)
	}
	for _, adapter := range adapters {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+adapter)
		list.Dir = "../.."
		out, err := list.Output()
		require.NoError(t, err)
		links := strings.Fields(string(out))
		for _, other := range backends.All {
			wanted := other.Package == adapter || adapter == "all" && other.Module == ""
			for _, path := range []string{module + other.Folder(), other.Library} {
				if path != "" {
					assert.Equal(t, wanted, slices.Contains(links, path), "%s links %s", adapter, path)
				}
			}
		}
	}
}
