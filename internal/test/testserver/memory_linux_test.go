package testserver

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMemoryDir_ofADeadProcessIsRemoved(t *testing.T) {
	old := func() string {
		dir, err := os.MkdirTemp(inMemory, memoryPrefix)
		require.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		long := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(dir, long, long))
		return dir
	}
	fresh := MemoryDir(t) // which removes what is there
	dead, alive := old(), old()
	held, err := holdDir(alive)
	require.NoError(t, err)
	defer held.Close()
	removeDeadDirs()
	assert.NoDirExists(t, dead, "no process has locked it")
	assert.DirExists(t, alive, "a process has locked it")
	assert.DirExists(t, fresh)
}
