package testserver

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
)

// A killed test process runs no clean-up. This test starts one, which is the same program again.
func TestRedis_diesWithTheTestProcess(t *testing.T) {
	const env = "TESTSERVER_HELPER_PROCESS"
	if os.Getenv(env) != "" {
		fmt.Printf("addr=%s\n", Redis(t).Addr())
		_, _ = io.Copy(io.Discard, os.Stdin) // until killed, or the test has gone
		return
	}
	lookup(t, redisServer)
	helper := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	helper.Env = append(os.Environ(), env+"=1", "TMPDIR="+t.TempDir())
	in, err := helper.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := helper.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, helper.Start())
	var addr string
	_, err = fmt.Fscanf(out, "addr=%s\n", &addr)
	require.NoError(t, err)
	accepts := func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	require.True(t, accepts())
	require.NoError(t, helper.Process.Kill())
	_ = helper.Wait()
	testwait.Patience(20*time.Second).Until(t, "the server is gone", func() bool { return !accepts() })
}

func TestMemoryDir_ofADeadProcessIsRemoved(t *testing.T) {
	MemoryDir(t) // which removes what is there
	dir := func(changed time.Time) string {
		dir, err := os.MkdirTemp(inMemory, memoryPrefix)
		require.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		require.NoError(t, os.Chtimes(dir, changed, changed))
		return dir
	}
	long := time.Now().Add(-time.Hour)
	dead, alive, fresh := dir(long), dir(long), dir(time.Now())
	held, err := holdDir(alive)
	require.NoError(t, err)
	defer held.Close()
	removeDeadDirs()
	assert.NoDirExists(t, dead, "no process has locked it")
	assert.DirExists(t, alive, "a process has locked it")
	assert.DirExists(t, fresh, "a process may be about to lock it")
}
