package fencecheck_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program that fences writes links the client library that it writes with, no other, and no lock.
func TestFences_compileNoOtherClient(t *testing.T) {
	const module = "github.com/go-locker/locker"
	libraries := map[string]string{
		"": "", "redisfence": "github.com/redis/go-redis/v9", "redigofence": "github.com/gomodule/redigo/redis",
		"etcdfence": "go.etcd.io/etcd/client/v3", "zookeeperfence": "github.com/go-zookeeper/zk",
	}
	for of := range libraries {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", strings.TrimSuffix(module+"/fence/"+of, "/")).Output()
		require.NoError(t, err)
		links := strings.Fields(string(out))
		assert.NotContains(t, links, module, "fence/%s", of)
		for other, library := range libraries {
			if library != "" {
				assert.Equal(t, of == other, slices.Contains(links, library), "fence/%s links %s", of, library)
			}
		}
	}
}
