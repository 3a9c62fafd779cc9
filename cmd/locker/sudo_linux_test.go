package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// A member of the command's group that has become another user, as by sudo without a terminal of its own, cannot be signalled. The
// group can, in part, so that kill(2) reports a success.
func TestRun_lockTakenAway_doesNotWaitForAnotherUsersMemberOfTheGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a program that becomes root")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	const somebody = 64987
	s := testserver.Redis(t)
	dir, err := os.MkdirTemp("", "locker")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	copyTo := func(from, name string, mode os.FileMode) string {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		to := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(to, content, 0o700))
		require.NoError(t, os.Chmod(to, mode))
		return to
	}
	require.NoError(t, os.Chown(dir, somebody, somebody)) // and nobody else gets in, where there is a program that becomes root
	locker, sudo := copyTo(binary, "locker", 0o755), copyTo(setpriv, "sudo", os.ModeSetuid|0o755)
	cmd := exec.Command(locker, "run", s.URL()+"?ttl=3s", "name", "--", "sh", "-c",
		sudo+" --reuid=0 --clear-groups sh -c 'echo $$ > "+dir+"/root; exec sleep 60' > /dev/null 2>&1 & while :; do sleep 0.01; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: somebody, Gid: somebody}}
	p := beginCommand(t, cmd)
	root := pidOf(t, dir+"/root")
	t.Cleanup(func() { _ = syscall.Kill(root, syscall.SIGKILL) })
	s.Do("FLUSHALL")
	select {
	case <-p.ended:
	case <-time.After(8 * time.Second):
		t.Error("locker waits for a process that it can never end")
		require.NoError(t, syscall.Kill(root, syscall.SIGKILL))
	}
	assert.Equal(t, exitLost, p.wait())
	assert.Contains(t, p.stderr.String(), "another user")
}
