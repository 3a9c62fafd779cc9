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
)

// stubborn is a command whose child, a grandchild of ours, ignores every signal that can be. It writes its pid to dir/pid, and
// that it got SIGTERM to dir/term.
func stubborn(dir string) []string {
	return []string{"sh", "-c", `
		sh -c 'trap "" TERM INT HUP; echo $$ > ` + dir + `/child; while :; do sleep 0.01; done' &
		trap "echo > ` + dir + `/term" TERM
		while [ ! -s ` + dir + `/child ]; do sleep 0.01; done
		echo $$ > ` + dir + `/pid
		while :; do sleep 0.01; done`}
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

// A command whose holder is cut off is gone, with all its children, when another gets the lock.
func TestRun_cutOff_isDeadWhenAnotherGetsTheLock(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	proxy := testserver.NewProxy(t, s.Addr())
	dir := t.TempDir()
	p := begin(t, append([]string{"run", "redis://" + proxy.Addr() + unhurried, "name", "--"}, stubborn(dir)...)...)
	command, child := pidOf(t, dir+"/pid"), pidOf(t, dir+"/child")

	proxy.DropRequests(true)
	hold(t, s.URL()+unhurried, "name")
	assert.False(t, alive(t, command), "the command runs, and another holds the lock")
	assert.False(t, alive(t, child), "a child of the command runs, and another holds the lock")
	assert.FileExists(t, dir+"/term", "SIGTERM comes first")

	assert.Equal(t, exitLost, p.wait())
	assert.Contains(t, p.stderr.String(), "could not be renewed")
}

func TestRun_silentServer_endsTheCommand(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	p := begin(t, append([]string{"run", s.URL() + "?ttl=2s", "name", "--"}, stubborn(dir)...)...)
	command, child := pidOf(t, dir+"/pid"), pidOf(t, dir+"/child")
	s.Stop()
	defer s.Continue()
	assert.Equal(t, exitLost, p.wait())
	assert.False(t, alive(t, command))
	assert.False(t, alive(t, child))
}

func TestRun_deadServer_letsTheCommandTidyUp(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	p := begin(t, "run", s.URL()+"?ttl=2s", "name", "--", "sh", "-c",
		"trap 'echo > "+dir+"/tidy; exit 0' TERM; echo > "+dir+"/up; while :; do sleep 0.01; done")
	awaitFile(t, dir+"/up")
	s.Kill()
	assert.Equal(t, exitLost, p.wait(), "though the command said 0")
	assert.FileExists(t, dir+"/tidy")
}

func TestRun_lockTakenAway_killsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	p := begin(t, append([]string{"run", s.URL() + "?ttl=3s", "name", "--"}, stubborn(dir)...)...)
	command, child := pidOf(t, dir+"/pid"), pidOf(t, dir+"/child")
	s.Do("FLUSHALL")
	assert.Equal(t, exitLost, p.wait())
	assert.False(t, alive(t, command))
	assert.False(t, alive(t, child))
	assert.NoFileExists(t, dir+"/term", "no time is given to a command that has no lock")
	assert.Contains(t, p.stderr.String(), "the lock was lost")
}

func TestRun_killedItself_takesTheCommandAlong(t *testing.T) {
	t.Parallel()
	if !isLinux {
		t.Skip("only Linux ends the child of a process that is killed")
	}
	s := testserver.Redis(t)
	pid := filepath.Join(t.TempDir(), "pid")
	p := begin(t, "run", s.URL()+"?ttl=2s", "name", "--", "sh", "-c", "echo $$ > "+pid+"; while :; do sleep 0.01; done")
	command := pidOf(t, pid)
	require.NoError(t, p.cmd.Process.Kill())
	patience.Until(t, "the command is dead", func() bool { return !alive(t, command) })
	m := hold(t, s.URL()+"?ttl=2s", "name") // when it has expired
	require.NoError(t, m.Unlock(deadline(t)))
}

func TestRun_withoutRenewal_endsTheCommandWithTheTTL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := begin(t, append([]string{"run", "mem://x?ttl=1s&renew=false", "name", "--"}, stubborn(dir)...)...)
	assert.Equal(t, exitLost, p.wait())
	assert.False(t, alive(t, pidOf(t, dir+"/child")))
}

// An error that nobody can read, because stderr is closed, does not end the program.
func TestRun_whoseStderrIsClosed_stillEndsTheCommand(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(binary, append([]string{"run", s.URL() + "?ttl=3s", "name", "--"}, stubborn(dir)...)...)
	cmd.Stderr = w
	require.NoError(t, cmd.Start())
	require.NoError(t, w.Close())
	child := pidOf(t, dir+"/child")
	require.NoError(t, r.Close())
	s.Do("FLUSHALL")
	_ = cmd.Wait()
	assert.Equal(t, exitLost, job.ExitCode(cmd.ProcessState))
	assert.False(t, alive(t, child))
}
