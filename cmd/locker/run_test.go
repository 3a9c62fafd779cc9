//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// hold takes a lock in this process.
func hold(t *testing.T, url, name string) *locker.Mutex {
	t.Helper()
	c, err := locker.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	m := c.Mutex(name)
	require.NoError(t, m.Lock(deadline(t)))
	return m
}

// isFree fails the test unless a lock can be had at once.
func isFree(t *testing.T, url, name string) {
	t.Helper()
	c, err := locker.Open(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	m := c.Mutex(name)
	require.NoError(t, m.TryLock(deadline(t)), "the lock should be free")
	require.NoError(t, m.Unlock(deadline(t)))
}

// awaitFile returns the content of a file that a command writes and then renames, or that has a line.
func awaitFile(t *testing.T, name string) string {
	t.Helper()
	var content []byte
	patience.Until(t, name+" is written", func() bool {
		content, _ = os.ReadFile(name)
		return strings.HasSuffix(string(content), "\n")
	})
	return strings.TrimSpace(string(content))
}

func TestRun_exitCodeIsThatOfTheCommand(t *testing.T) {
	t.Parallel()
	notExecutable := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(notExecutable, []byte("x"), 0o600))
	for _, c := range []struct {
		command []string
		want    int
		says    string
	}{
		{[]string{"true"}, 0, ""},
		{[]string{"sh", "-c", "exit 7"}, 7, ""},
		{[]string{"sh", "-c", "exit 255"}, 255, ""},
		{[]string{"sh", "-c", "kill -TERM $$"}, 128 + 15, ""},
		{[]string{"sh", "-c", "kill -KILL $$"}, 128 + 9, ""},
		{[]string{"no-such-command-anywhere"}, exitNotFound, "command not found"},
		{[]string{"/no/such/file"}, exitNotFound, "command not found"},
		{[]string{notExecutable}, exitCannotRun, "cannot be executed"},
	} {
		o := locked(t, append([]string{"run", "mem://x", "name", "--"}, c.command...)...)
		assert.Equal(t, c.want, o.code, "%q", c.command)
		if c.says == "" {
			assert.Empty(t, o.stderr, "%q", c.command)
		} else {
			assert.Contains(t, o.stderr, c.says, "%q", c.command)
		}
	}
}

func TestRun_passesTokenAndNameAndStandardInput(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	var last uint64
	for range 3 {
		o := lockedWith(t, []string{"LOCKER_FENCING_TOKEN=1", "LOCKER_NAME=outer", "LOCKER_URL=" + s.URL()},
			"run", "-", "a name", "--", "sh", "-c", `echo "$LOCKER_FENCING_TOKEN $LOCKER_NAME"`)
		require.Zero(t, o.code, o.stderr)
		number, name, _ := strings.Cut(strings.TrimSpace(o.stdout), " ")
		token, err := strconv.ParseUint(number, 10, 64)
		require.NoError(t, err)
		assert.Greater(t, token, last)
		assert.Equal(t, "a name", name)
		last = token
	}
}

func TestRun_tellsWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	show := func(flags ...string) string {
		t.Helper()
		dir := t.TempDir()
		p := begin(t, append(append([]string{"run"}, flags...), s.URL(), "name", "--",
			"sh", "-c", "echo > "+dir+"/up; while [ ! -e "+dir+"/go ]; do sleep 0.01; done")...)
		awaitFile(t, dir+"/up")
		var seen []string
		for _, key := range s.Do("KEYS", "*").([]any) {
			if s.Do("TYPE", fmt.Sprint(key)) == "hash" {
				seen = append(seen, fmt.Sprint(s.Do("HGETALL", fmt.Sprint(key))))
			}
		}
		require.NoError(t, os.WriteFile(dir+"/go", nil, 0o600))
		require.Zero(t, p.wait())
		return strings.Join(seen, " ")
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	assert.Contains(t, show(), "@"+host+" pid ")
	assert.Contains(t, show("--metadata", "job 4711"), "job 4711")
}

func TestRun_ofALockThatAnotherHolds(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	hold(t, s.URL(), "name")
	for _, c := range []struct {
		flags []string
		code  int
		says  string
	}{
		{[]string{"--no-wait"}, exitHeld, "locker: trylock \"name\": the lock is held by another owner\n"},
		{[]string{"--wait", "200ms"}, exitHeld, "held by another owner"},
		{[]string{"--no-wait", "--held-exit-code", "0"}, 0, "held by another owner"},
		{[]string{"--wait", "200ms", "--held-exit-code", "3", "-q"}, 3, ""},
	} {
		o := locked(t, slices.Concat([]string{"run"}, c.flags, []string{s.URL(), "name", "--", "echo", "runs"})...)
		assert.Equal(t, c.code, o.code, "%q", c.flags)
		assert.Empty(t, o.stdout, "%q", c.flags)
		if c.says == "" {
			assert.Empty(t, o.stderr, "%q", c.flags)
		}
		assert.Contains(t, o.stderr, c.says, "%q", c.flags)
		assert.LessOrEqual(t, strings.Count(o.stderr, "locker:"), 1, "who speaks is said once: %q", o.stderr)
	}
}

func TestRun_whileTheBackendIsAway(t *testing.T) {
	t.Parallel()
	gone := testserver.Redis(t)
	gone.Kill()
	silent := testserver.Redis(t)
	silent.Stop()
	defer silent.Continue()
	urls := []string{gone.URL() + "?ttl=1s", silent.URL() + "?ttl=1s", "etcd://" + gone.Addr() + "?ttl=2s"}
	ways := [][]string{{}, {"--wait", "300ms"}}
	if testwait.Thorough() {
		guarded := testserver.Etcd(t, testserver.EtcdAuth("app", "secret"))
		urls = append(urls, "zookeeper://"+gone.Addr()+"?ttl=2s",
			"etcd://app:secret@"+gone.Addr()+"?ttl=2s&dial_timeout=300ms", "etcd://app:wrong@"+guarded.Addr()+"?ttl=2s")
		ways = append(ways, []string{"--no-wait"})
	}
	for _, url := range urls {
		for _, flags := range ways {
			o := locked(t, slices.Concat([]string{"run"}, flags, []string{url, "name", "--", "echo", "runs"})...)
			assert.Equal(t, exitUnreachable, o.code, "%s %q: %s", url, flags, o.stderr)
			assert.Empty(t, o.stdout, "%s %q", url, flags)
			assert.NotEmpty(t, o.stderr, "%s %q", url, flags)
		}
	}
}

func TestRun_passesSignalsOnToTheCommand(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	for _, signal := range forwarded {
		n := signal.(syscall.Signal)
		up := filepath.Join(t.TempDir(), "up")
		p := begin(t, "run", s.URL(), "name", "--", "sh", "-c",
			fmt.Sprintf("trap 'exit 42' %d; echo > %s; while :; do sleep 0.01; done", int(n), up))
		awaitFile(t, up)
		require.NoError(t, p.cmd.Process.Signal(n))
		assert.Equal(t, 42, p.wait(), "%v", n)
		isFree(t, s.URL(), "name")
	}
}

func TestRun_interruptedWhileTheCommandRuns_leavesNothingLocked(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	up := filepath.Join(t.TempDir(), "up")
	p := begin(t, "run", s.URL(), "name", "--", "sh", "-c", "echo > "+up+"; exec sleep 1000")
	awaitFile(t, up)
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	assert.Equal(t, 128+2, p.wait())
	isFree(t, s.URL(), "name")
}

func TestRun_interruptedWhileItWaits_leavesTheQueue(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	m := hold(t, s.URL(), "name")
	for _, n := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1} {
		p := begin(t, "run", s.URL(), "name", "--", "echo", "runs")
		queued := func() bool {
			for _, key := range s.Do("KEYS", "*").([]any) {
				if s.Do("TYPE", fmt.Sprint(key)) == "zset" {
					return true
				}
			}
			return false
		}
		patience.Until(t, "it waits", queued)
		require.NoError(t, p.cmd.Process.Signal(n))
		assert.Equal(t, 128+int(n), p.wait())
		assert.Empty(t, p.stdout.String())
		patience.Until(t, "it has left the queue", func() bool { return !queued() })
	}
	require.NoError(t, m.Unlock(deadline(t)))
	isFree(t, s.URL(), "name")
}

func TestRun_underNohupGoesOnAfterHangup(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	p := begin(t, "run", "mem://x", "outer", "--", "sh", "-c", "trap '' HUP; exec "+binary+" run "+s.URL()+" name -- "+
		"sh -c 'echo > "+dir+"/up; while [ ! -e "+dir+"/go ]; do sleep 0.01; done; exit 5'")
	awaitFile(t, dir+"/up")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, os.WriteFile(dir+"/go", nil, 0o600))
	assert.Equal(t, 5, p.wait())
}
