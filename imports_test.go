package locker_test

import (
	"go/build"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program that takes a lock compiles the backend that it chose, and nothing else of anybody's.
func TestRootPackage_importsTheStandardLibraryAlone(t *testing.T) {
	const module = "github.com/go-locker/locker/"
	for dirs, i := []string{"."}, 0; i < len(dirs); i++ {
		p, err := build.ImportDir(dirs[i], 0)
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
	libraries := map[string]string{
		"memory": "", "redlock": "",
		"redis": "github.com/redis/go-redis/v9", "redigo": "github.com/gomodule/redigo/redis",
		"etcd": "go.etcd.io/etcd/client/v3", "zookeeper": "github.com/go-zookeeper/zk",
	}
	for _, adapter := range []string{"memory", "redlock", "redis", "redigo", "etcd", "zookeeper", "all"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+adapter).Output()
		require.NoError(t, err)
		links := strings.Fields(string(out))
		for other, library := range libraries {
			wanted := other == adapter || adapter == "all"
			for _, path := range []string{module + other, library} {
				if path != "" {
					assert.Equal(t, wanted, slices.Contains(links, path), "%s links %s", adapter, path)
				}
			}
		}
	}
}
