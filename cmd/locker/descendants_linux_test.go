package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// loop returns a command that writes its pid to dir/name and runs until it is killed. It ignores SIGTERM, but notes it. It has no
// pipe of ours, so that we do not wait for it.
func loop(t *testing.T, dir, name string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(file+".sh", []byte(`trap "" HUP; trap "echo >> `+file+`.term" TERM; echo $$ > `+file+`
		while :; do sleep 0.01; done`), 0o600))
	return "sh " + file + ".sh > /dev/null 2>&1"
}

// scattered is a command with three descendants that its process group does not reach: one of a group of its own, one of a session
// of its own, and one whose parents have ended.
func scattered(t *testing.T, dir string) []string {
	t.Helper()
	return []string{"sh", "-c", "timeout 600 " + loop(t, dir, "grouped") + " & setsid " + loop(t, dir, "session") + " & " +
		"setsid sh -c '" + loop(t, dir, "orphan") + " & ' & echo $$ > " + dir + "/leader; while :; do sleep 0.01; done"}
}

var scatter = []string{"grouped", "session", "orphan"}

// pids of the descendants of a scattered command, by name. What is left of them dies with the test.
func pids(t *testing.T, dir string) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, name := range append([]string{"leader"}, scatter...) {
		pid := pidOf(t, filepath.Join(dir, name))
		all[name] = pid
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	}
	return all
}

func TestRun_lockTakenAway_killsWhatHasLeftTheGroup(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	p := begin(t, append([]string{"run", s.URL() + "?ttl=3s", "name", "--"}, scattered(t, dir)...)...)
	all := pids(t, dir)
	s.Do("FLUSHALL")
	assert.Equal(t, exitLost, p.wait())
	for name, pid := range all {
		assert.False(t, alive(t, pid), "%s runs on, and run has said that the lock was lost", name)
	}
}

func TestRun_cutOff_givesWhatHasLeftTheGroupTimeToTidyUp(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	proxy := testserver.NewProxy(t, s.Addr())
	dir := t.TempDir()
	p := begin(t, append([]string{"run", "redis://" + proxy.Addr() + unhurried, "name", "--"}, scattered(t, dir)...)...)
	all := pids(t, dir)
	proxy.DropRequests(true)
	hold(t, s.URL()+unhurried, "name")
	for name, pid := range all {
		assert.False(t, alive(t, pid), "%s runs, and another holds the lock", name)
	}
	for _, name := range scatter { // the command itself is a shell, and dies of it
		assert.FileExists(t, filepath.Join(dir, name+".term"), "SIGTERM comes first, and there is time to heed it")
	}
	assert.Equal(t, exitLost, p.wait())
}

// Each process of it lives for a moment, and is the parent of the next. Without the sleep, it takes
// luck to kill one before it has started the next: on a busy machine reading /proc takes longer.
func TestRun_lockTakenAway_killsAChainOfShortLivedProcesses(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	beats, stop := dir+"/beats", dir+"/stop"
	defer func() { require.NoError(t, os.WriteFile(stop, nil, 0o600)) }()
	require.NoError(t, os.WriteFile(dir+"/chain.sh", []byte("[ -e "+stop+" ] || { echo >> "+beats+"; sleep 0.01; sh "+dir+"/chain.sh & }"), 0o600))
	p := begin(t, "run", s.URL()+"?ttl=3s", "name", "--", "sh", "-c", "setsid sh "+dir+"/chain.sh > /dev/null 2>&1 & while :; do sleep 0.01; done")
	awaitFile(t, beats)
	s.Do("FLUSHALL")
	assert.Equal(t, exitLost, p.wait())
	before, err := os.ReadFile(beats)
	require.NoError(t, err)
	time.Sleep(200 * time.Millisecond)
	after, err := os.ReadFile(beats)
	require.NoError(t, err)
	assert.Len(t, after, len(before), "something runs on, and run has said that the lock was lost")
}

// It ended by itself: what it has started in the background is its own business, as under a shell.
func TestRun_leavesAloneWhatACommandThatEndsLeavesBehind(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	o := locked(t, "run", s.URL(), "name", "--", "sh", "-c", loop(t, dir, "background")+" & "+
		"while [ ! -s "+dir+"/background ]; do sleep 0.01; done; exit 3")
	pid := pidOf(t, dir+"/background")
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	assert.Equal(t, 3, o.code, o.stderr)
	isFree(t, s.URL(), "name")
	assert.True(t, alive(t, pid))
	assert.NoFileExists(t, dir+"/background.term")
}

// A shell that has started something, and then becomes locker.
func TestRun_doesNotKillWhatItHasNotStarted(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	p := begin(t, "run", "mem://x", "outer", "--", "sh", "-c", loop(t, dir, "other")+" & while [ ! -s "+dir+"/other ]; do sleep 0.01; done; "+
		"exec "+binary+" run "+s.URL()+"?ttl=3s name -- sh -c 'timeout 600 "+loop(t, dir, "mine")+" & wait'")
	other, mine := pidOf(t, dir+"/other"), pidOf(t, dir+"/mine")
	defer func() { _ = syscall.Kill(other, syscall.SIGKILL) }()
	s.Do("FLUSHALL")
	assert.Equal(t, exitLost, p.wait())
	assert.False(t, alive(t, mine))
	assert.True(t, alive(t, other), "it was there before")
}

// In a container it may be the first process. Without a /proc of its own it sees processes by other numbers, and signals none of them.
func TestRun_asPID1(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("no PID namespace can be made here: %v %s", err, out)
	}
	s := testserver.Redis(t)
	for _, flags := range [][]string{{"--pid", "--fork", "--kill-child", "--mount-proc"}, {"--pid", "--fork", "--kill-child"}} {
		dir := t.TempDir()
		cmd := exec.Command("unshare", slices.Concat(flags, []string{binary, "run", s.URL() + "?ttl=3s", "name", "--"}, scattered(t, dir))...)
		p := beginCommand(t, cmd)
		for _, name := range append([]string{"leader"}, scatter...) {
			awaitFile(t, filepath.Join(dir, name))
		}
		s.Do("FLUSHALL")
		assert.Equal(t, exitLost, p.wait(), "%q: %s", flags, p.stderr)
	}
}

// children returns the state of each child of a process, by pid.
func children(t *testing.T, parent int) map[int]string {
	t.Helper()
	all := map[int]string{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if fields[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			require.NoError(t, err)
			all[pid] = fields[0]
		}
	}
	return all
}

// Orphans become ours, and would stay as zombies as long as the command runs.
func TestRun_waitsForOrphans(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := begin(t, "run", "mem://x", "name", "--", "sh", "-c",
		"for i in 1 2 3 4 5; do (sleep 0.05 &) ; done; echo > "+dir+"/up; while [ ! -e "+dir+"/go ]; do sleep 0.01; done")
	awaitFile(t, dir+"/up")
	patience.Until(t, "the command is the only child", func() bool { return len(children(t, p.cmd.Process.Pid)) == 1 })
	require.NoError(t, os.WriteFile(dir+"/go", nil, 0o600))
	assert.Zero(t, p.wait(), p.stderr)
}

// Who stops locker alone stops the renewal, and not the command. When it goes on, it sees that.
func TestRun_stoppedAndContinued_endsTheCommand(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	p := begin(t, append([]string{"run", s.URL() + "?ttl=2s", "name", "--"}, scattered(t, dir)...)...)
	all := pids(t, dir)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	m := hold(t, s.URL()+"?ttl=2s", "name")
	assert.True(t, alive(t, all["leader"]), "as the documentation says")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	assert.Equal(t, exitLost, p.wait())
	for name, pid := range all {
		assert.False(t, alive(t, pid), name)
	}
	require.NoError(t, m.Unlock(deadline(t)), "the lock of the other is untouched")
}
