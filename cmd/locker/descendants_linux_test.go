package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/cmd/locker/internal/check"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/internal/test/testserver"
)

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
	assert.Equal(t, outcome.Lost, p.wait())
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
	assert.Equal(t, outcome.Lost, p.wait())
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
		cmd := exec.Command("unshare", slices.Concat(flags, []string{binary, "run", s.URL() + "?ttl=3s", "name", "--"}, stubborn(t, dir))...)
		p := beginCommand(t, cmd)
		for _, name := range family() {
			awaitFile(t, filepath.Join(dir, name))
		}
		s.Do("FLUSHALL")
		assert.Equal(t, outcome.Lost, p.wait(), "%q: %s", flags, p.stderr)
	}
}

// Orphans become ours, and would stay as zombies as long as the command runs.
func TestRun_waitsForOrphans(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := begin(t, "run", "mem://x", "name", "--", "sh", "-c",
		"for i in 1 2 3 4 5; do (sleep 0.05 &) ; done; echo > "+dir+"/up; while [ ! -e "+dir+"/go ]; do sleep 0.01; done")
	awaitFile(t, dir+"/up")
	patience.Until(t, "the command is the only child", func() bool { return len(jobsOf(p.cmd.Process.Pid)) == 1 })
	require.NoError(t, os.WriteFile(dir+"/go", nil, 0o600))
	assert.Zero(t, p.wait(), p.stderr)
}

// Who stops locker alone stops the renewal, and not the command. When it goes on, it sees that.
func TestRun_stoppedAndContinued_endsTheCommand(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	p := begin(t, append([]string{"run", s.URL() + "?ttl=2s", "name", "--"}, stubborn(t, dir)...)...)
	all := pids(t, dir)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	m := hold(t, s.URL()+"?ttl=2s", "name")
	assert.True(t, alive(t, all["leader"]), "as the documentation says")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	assert.Equal(t, outcome.Lost, p.wait())
	for name, pid := range all {
		assert.False(t, alive(t, pid), name)
	}
	require.NoError(t, m.Unlock(deadline(t)), "the lock of the other is untouched")
}

// A member of the command's group that has become another user, as by sudo without a terminal of
// its own, cannot be signalled. The group can, in part, so that kill(2) reports a success.
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
	assert.Equal(t, outcome.Lost, p.wait())
	assert.Contains(t, p.stderr.String(), "another user")
}

func TestSignal_afterTheWorkIsDoneChangesNothing(t *testing.T) {
	c := &cobra.Command{}
	c.SetContext(t.Context())
	for _, want := range []error{nil, errors.New("in the midst of it")} {
		err := interruptible(c, func(ctx context.Context) error {
			require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
			<-ctx.Done()
			return want
		})
		if want == nil {
			require.NoError(t, err)
			continue
		}
		assert.Equal(t, 128+int(syscall.SIGUSR1), exitCode(err))
	}
}

func TestCheck_whoseReportCannotBeWrittenIsBrokenAllTheSame(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	memory := served("mem://x") // a lock of each process
	cmd := exec.Command(binary, "check", "--output", "json", "--exec", memory, "--run", "^a held lock is not granted to another")
	cmd.Stdout = full
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &exit)
	assert.Equal(t, outcome.Broken, exit.ExitCode())
	for _, format := range []string{"text", "json", "junit"} {
		require.ErrorIs(t, writeReport(full, &check.Report{}, format), syscall.ENOSPC, format)
	}
}
