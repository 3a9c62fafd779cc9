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
		links := links(t, adapter)
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

// links are the packages that a program with that import links.
func links(t *testing.T, dir string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+dir)
	list.Dir = "../.."
	out, err := list.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// A program that fences writes links the client library that it writes with, no other, and no lock.
func TestFences_linkNoOtherLibrary(t *testing.T) {
	libraries := map[string]string{
		"fence": "", "fence/redisfence": "github.com/redis/go-redis/v9",
		"fence/redigofence": "github.com/gomodule/redigo/redis", "fence/filefence": "github.com/gofrs/flock",
		"fence/httpfence": "", "fence/etcdfence": "go.etcd.io/etcd/client/v3",
		"fence/zookeeperfence": "github.com/go-zookeeper/zk",
	}
	for of := range libraries {
		links := links(t, of)
		assert.NotContains(t, links, "github.com/go-locker/locker", of)
		for other, library := range libraries {
			if library != "" {
				assert.Equal(t, of == other, slices.Contains(links, library), "%s links %s", of, library)
			}
		}
	}
}
