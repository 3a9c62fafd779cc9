//go:build unix

package main

import (
	"fmt"
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

	"github.com/go-locker/locker/cmd/locker/internal/job"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// isFree fails the test unless a lock can be had at once.
func isFree(t *testing.T, url, name string) {
	t.Helper()
	assert.Zero(t, locked(t, "run", "--no-wait", url, name, "--", "true").code, "the lock should be free")
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

// Five machines start a short job, one after the other as their clocks are late.
func TestRun_atLeastTheJobRunsOnce(t *testing.T) {
	t.Parallel()
	url := testserver.SharedRedis(t).URL() + "?ttl=1s&prefix=atleast"
	codes := map[int]int{}
	for range 5 {
		codes[begin(t, "run", "--no-wait", "-q", "--at-least", "10s", url, "name", "--", "sh", "-c", "sleep 0.02; exit 7").wait()]++
		time.Sleep(100 * time.Millisecond)
	}
	assert.Equal(t, map[int]int{7: 1, outcome.Held: 4}, codes)
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
		{[]string{"no-such-command-anywhere"}, outcome.NotFound, "command not found"},
		{[]string{"/no/such/file"}, outcome.NotFound, "command not found"},
		{[]string{notExecutable}, outcome.CannotRun, "cannot be executed"},
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

func TestRun_ofALockThatAnotherHolds(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	hold(t, s.URL(), "name")
	for _, c := range []struct {
		flags []string
		code  int
		says  string
	}{
		{[]string{"--no-wait"}, outcome.Held, "locker: trylock \"name\": the lock is held by another owner\n"},
		{[]string{"--wait", "200ms"}, outcome.Held, "held by another owner"},
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
			assert.Equal(t, outcome.Unreachable, o.code, "%s %q: %s", url, flags, o.stderr)
			assert.Empty(t, o.stdout, "%s %q", url, flags)
			assert.NotEmpty(t, o.stderr, "%s %q", url, flags)
		}
	}
}

func TestRun_slotsOfASemaphore(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	job := func(flags ...string) *process {
		return begin(t, slices.Concat([]string{"run", "-n", "2"}, flags, []string{
			s.URL(), "name", "--",
			"sh", "-c", "echo $LOCKER_SLOT > " + dir + "/$$.new; mv " + dir + "/$$.new " + dir + "/$$.up; while [ ! -e " + dir + "/go ]; do sleep 0.01; done",
		})...)
	}
	running := []*process{job(), job()}
	var up []string
	patience.Until(t, "two run at once", func() bool {
		up, _ = filepath.Glob(dir + "/*.up")
		return len(up) == 2
	})
	assert.ElementsMatch(t, []string{"0", "1"}, []string{awaitFile(t, up[0]), awaitFile(t, up[1])})
	assert.Equal(t, outcome.Held, job("--no-wait").wait())
	waits, told := beginVerbose(t, s.URL(), "-n=2")
	for _, slot := range []string{"name/0", "name/1"} {
		found, err := inspect(deadline(t), s.URL(), slot)
		require.NoError(t, err)
		told(found.Holder.Metadata)
	}
	require.NoError(t, os.WriteFile(dir+"/go", nil, 0o600))
	for _, p := range append(running, waits) {
		assert.Zero(t, p.wait(), p.stderr)
	}
}

func TestRun_sharesRunBesideEachOther(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	outer := locked(t, "run", "--shared", s.URL(), "name", "--", binary, "run", "--shared", s.URL(), "name", "--",
		binary, "run", "--no-wait", s.URL(), "name", "--", "true")
	assert.Equal(t, outcome.Held, outer.code, "a share beside a share, and nobody alone beside them: %s", outer.stderr)
}

func TestRun_verboseTellsWhoHoldsTheLockAndThePlaceInTheQueue(t *testing.T) {
	t.Parallel()
	for _, url := range []string{testserver.Redis(t).URL(), testserver.Etcd(t).URL()} {
		m := hold(t, url, "name")
		first := begin(t, "run", "--metadata", "job 4711", url, "name", "--", "true")
		patience.Until(t, "one waits", func() bool {
			found, err := inspect(deadline(t), url, "name")
			return err == nil && len(found.Waiters) == 1 && found.Waiters[0].Metadata == "job 4711"
		})
		second, told := beginVerbose(t, url)
		told("held by an owner without metadata (")
		told("; place 2 of 2 in the queue\n")
		require.NoError(t, m.Unlock(deadline(t)))
		require.Zero(t, first.wait())
		require.Zero(t, second.wait())
	}
}

// beginVerbose begins a run of true that tells whom it waits for, and returns how to wait for it to
// tell something.
func beginVerbose(t *testing.T, url string, flags ...string) (p *process, told func(what string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stderr")
	args := slices.Concat([]string{"-c", `exec "$@" 2> ` + file, "sh", binary, "run", "--verbose"}, flags, []string{url, "name", "--", "true"})
	return beginCommand(t, exec.Command("sh", args...)), func(what string) {
		t.Helper()
		patience.Until(t, "it tells: "+what, func() bool {
			text, _ := os.ReadFile(file)
			return strings.Contains(string(text), what)
		})
	}
}

func TestRun_passesSignalsOnToTheCommand(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	for _, signal := range job.Forwarded {
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

func TestRun_interruptedWhileItWaits_leavesTheQueue(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	m := hold(t, s.URL(), "name")
	for _, n := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1} {
		p := begin(t, "run", s.URL(), "name", "--", "echo", "runs")
		queued := func() bool {
			found, err := inspect(deadline(t), s.URL(), "name")
			return err == nil && len(found.Waiters) > 0
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

// A server that is silent keeps no command alive: a signal ends it within seconds, and Ctrl-C twice
// at once.
func TestSignal_endsEveryCommand(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"run|URL|name|--|true", "inspect|URL|name", "list|URL", "release|--force|--hold|7|URL|name", "watch|URL", "check|URL", "bench|URL", "compare|URL",
	} {
		for _, url := range []string{"redis://ADDR", "etcd://app:secret@ADDR?dial_timeout=10m"} { // which asks for a token first
			for n, most := range map[syscall.Signal]time.Duration{syscall.SIGTERM: 15 * time.Second, syscall.SIGINT: 3 * time.Second} {
				t.Run(fmt.Sprint(args, url[:4], n), func(t *testing.T) {
					t.Parallel()
					silent := testserver.NewProxy(t, testserver.SharedRedis(t).Addr())
					silent.HoldRequests(true)
					line := strings.ReplaceAll(args, "URL", strings.Replace(url, "ADDR", silent.Addr(), 1))
					p := begin(t, strings.Split(line, "|")...)
					patience.Until(t, "it asks something", func() bool { return silent.Requests() > 0 })
					began := time.Now()
					require.NoError(t, p.cmd.Process.Signal(n))
					if n == syscall.SIGINT {
						time.Sleep(time.Second)
						_ = p.cmd.Process.Signal(n) // it may have ended
					}
					if code := p.wait(); args != "watch|URL" || code != 0 { // which has no other end
						assert.Equal(t, 128+int(n), code, p.stderr)
					}
					assert.Less(t, time.Since(began), most, p.stderr)
				})
			}
		}
	}
}

// An outage at first, on a backend whose client library fails at once, is waited for like a holder.
func TestRun_waitIsAlsoForAnOutage(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Kill()
	began := time.Now()
	const wait = 6 * time.Second // a busy machine may stand still during the first request
	o := locked(t, "run", "--wait", wait.String(), s.URL()+"?ttl=1s", "name", "--", "true")
	assert.Equal(t, outcome.Unreachable, o.code, o.stderr)
	assert.Contains(t, o.stderr, "refused")
	assert.GreaterOrEqual(t, time.Since(began), wait)

	p := begin(t, "run", "--wait", "5m", s.URL()+"?ttl=1s", "name", "--", "true")
	time.Sleep(2 * time.Second)
	s.Restart()
	assert.Equal(t, 0, p.wait(), p.stderr)
}
