//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"

	"github.com/go-locker/locker/cmd/locker/internal/job"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
)

// loop returns a command that writes its pid to dir/name and runs until it is killed. It ignores
// SIGTERM, but notes it. It has no pipe of ours, so that we do not wait for it.
func loop(t *testing.T, dir, name string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(file+".sh", []byte(`trap "" HUP; trap "echo >> `+file+`.term" TERM; echo $$ > `+file+`
		while :; do sleep 0.01; done`), 0o600))
	return "sh " + file + ".sh > /dev/null 2>&1"
}

// stubborn is a command with a family that ignores SIGTERM. It writes each pid to a file in dir.
func stubborn(t *testing.T, dir string) []string {
	t.Helper()
	script := loop(t, dir, "child") + " & "
	if isLinux {
		script += "timeout 600 " + loop(t, dir, "grouped") + " & setsid " + loop(t, dir, "session") + " & " +
			"setsid sh -c '" + loop(t, dir, "orphan") + " & ' & "
	} else {
		script += "exec " // on Linux the shell dies of SIGTERM, and what it leaves has its time
	}
	return []string{"sh", "-c", script + loop(t, dir, "leader")}
}

// family has the names of the processes of a stubborn command. On Linux there are three that its
// process group does not reach: one of a group of its own, one of a session of its own, and one
// whose parents have ended.
func family() []string {
	if isLinux {
		return []string{"leader", "child", "grouped", "session", "orphan"}
	}
	return []string{"leader", "child"}
}

// pids of a stubborn command's family, by name. Survivors are killed with the test.
func pids(t *testing.T, dir string) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, name := range family() {
		pid := pidOf(t, filepath.Join(dir, name))
		all[name] = pid
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	}
	return all
}

// alive reports whether a process runs. One that is dead may wait for its parent, in a container for ever.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !os.IsNotExist(err) || !isLinux
	}
	return !zombie.Match(stat)
}

const isLinux = runtime.GOOS == "linux"

var zombie = regexp.MustCompile(`^\d+ \(.*\) [ZX] `)

func pidOf(t *testing.T, file string) int {
	t.Helper()
	pid, err := strconv.Atoi(awaitFile(t, file))
	require.NoError(t, err)
	return pid
}

// unhurried are the parameters of a lock with the longest time between SIGKILL and the expiry, one
// second, and four for a command to tidy up: on a loaded machine a process is slow to die.
const unhurried = "?ttl=16s"

// A command whose holder is cut off is gone, with its family, when another gets the lock.
func TestRun_cutOff_isDeadWhenAnotherGetsTheLock(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	proxy := testserver.NewProxy(t, s.Addr())
	dir := t.TempDir()
	p := begin(t, append([]string{"run", "redis://" + proxy.Addr() + unhurried, "name", "--"}, stubborn(t, dir)...)...)
	all := pids(t, dir)
	proxy.HoldRequests(true)
	hold(t, s.URL()+unhurried, "name")
	for name, pid := range all {
		assert.False(t, alive(t, pid), "%s runs, and another holds the lock", name)
		assert.FileExists(t, filepath.Join(dir, name+".term"), "SIGTERM comes first, and there is time to heed it")
	}
	assert.Equal(t, outcome.Lost, p.wait())
	assert.Contains(t, p.stderr.String(), "could not be renewed")
}

func TestRun_lockTakenAway_killsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	p := begin(t, append([]string{"run", s.URL() + "?ttl=3s", "name", "--"}, stubborn(t, dir)...)...)
	all := pids(t, dir)
	s.Do("FLUSHALL")
	assert.Equal(t, outcome.Lost, p.wait())
	for name, pid := range all {
		assert.False(t, alive(t, pid), "%s runs on, and run has said that the lock was lost", name)
		assert.NoFileExists(t, filepath.Join(dir, name+".term"), "no time is given to a command that has no lock")
	}
	assert.Contains(t, p.stderr.String(), "the lock was lost")
}

func TestRun_killedItself_takesTheCommandAlong(t *testing.T) {
	t.Parallel()
	onLinux(t)
	s := testserver.Redis(t)
	pid := filepath.Join(t.TempDir(), "pid")
	p := begin(t, "run", s.URL()+"?ttl=2s", "name", "--", "sh", "-c", "echo $$ > "+pid+"; while :; do sleep 0.01; done")
	command := pidOf(t, pid)
	require.NoError(t, p.cmd.Process.Kill())
	patience.Until(t, "the command is dead", func() bool { return !alive(t, command) })
	m := hold(t, s.URL()+"?ttl=2s", "name") // when it has expired
	require.NoError(t, m.Unlock(deadline(t)))
}

// An error that nobody can read, because stderr is closed, does not end the program.
func TestRun_whoseStderrIsClosed_stillEndsTheCommand(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(binary, append([]string{"run", s.URL() + "?ttl=3s", "name", "--"}, stubborn(t, dir)...)...)
	cmd.Stderr = w
	require.NoError(t, cmd.Start())
	require.NoError(t, w.Close())
	child := pidOf(t, dir+"/child")
	require.NoError(t, r.Close())
	s.Do("FLUSHALL")
	_ = cmd.Wait()
	assert.Equal(t, outcome.Lost, job.ExitCode(cmd.ProcessState))
	assert.False(t, alive(t, child))
}
