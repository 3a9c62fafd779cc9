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
	MemoryDir(t) // which removes what is there
	dead, alive := old(), old()
	fresh, err := os.MkdirTemp(inMemory, memoryPrefix)
	require.NoError(t, err)
	defer os.RemoveAll(fresh)
	held, err := holdDir(alive)
	require.NoError(t, err)
	defer held.Close()
	removeDeadDirs()
	assert.NoDirExists(t, dead, "no process has locked it")
	assert.DirExists(t, alive, "a process has locked it")
	assert.DirExists(t, fresh, "a process may be about to lock it")
}
