package fencecheck_test

import (
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program that fences writes links the client library that it writes with, no other, and no lock.
func TestFences_linkNoOtherLibrary(t *testing.T) {
	const module = "github.com/go-locker/locker"
	libraries := map[string]string{
		"": "", "redisfence": "github.com/redis/go-redis/v9", "redigofence": "github.com/gomodule/redigo/redis",
		"filefence": "github.com/gofrs/flock", "httpfence": "", "etcdfence": "go.etcd.io/etcd/client/v3", "zookeeperfence": "github.com/go-zookeeper/zk",
	}
	args := []string{"list", "-f", `{{.ImportPath}} {{join .Deps " "}}`}
	for of := range libraries {
		args = append(args, path.Join(module, "fence", of))
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, len(libraries))
	for _, line := range lines {
		links := strings.Fields(line)
		of := strings.Trim(strings.TrimPrefix(links[0], path.Join(module, "fence")), "/")
		require.Contains(t, libraries, of)
		assert.NotContains(t, links, module, "fence/%s", of)
		for other, library := range libraries {
			if library != "" {
				assert.Equal(t, of == other, slices.Contains(links, library), "fence/%s links %s", of, library)
			}
		}
	}
}
