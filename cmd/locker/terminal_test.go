//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// terminal is a shell with job control, as a person has it.
type terminal struct {
	t   *testing.T
	pty interface{ Write([]byte) (int, error) }

	mu     sync.Mutex
	screen bytes.Buffer
	seen   int // of it, by expect
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash, a shell with job control, is not here")
	}
	cmd := exec.Command(bash, "--norc", "--noprofile", "--noediting", "-i")
	cmd.Env = append(cmd.Environ(), "PS1=ready> ", "TERM=xterm", "HISTFILE=")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
	require.NoError(t, err)
	term := &terminal{t: t, pty: f}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 4096)
		for {
			n, err := f.Read(buffer)
			term.mu.Lock()
			term.screen.Write(buffer[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		for _, job := range jobsOf(cmd.Process.Pid) {
			_ = syscall.Kill(-job, syscall.SIGKILL)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-read
		_ = f.Close()
	})
	term.expect("ready> ")
	return term
}

// jobsOf are the process groups of the children of a process.
func jobsOf(parent int) (groups []int) {
	out, _ := exec.Command("ps", "-A", "-o", "ppid=,pgid=").Output()
	for line := range strings.Lines(string(out)) {
		var ppid, pgid int
		if n, _ := fmt.Sscan(line, &ppid, &pgid); n == 2 && ppid == parent && pgid > 1 {
			groups = append(groups, pgid)
		}
	}
	return groups
}

func (term *terminal) send(keys string) {
	term.t.Helper()
	_, err := term.pty.Write([]byte(keys))
	require.NoError(term.t, err)
}

// expect waits until text appears after what was expected last, and returns all between.
func (term *terminal) expect(text string) (before string) {
	term.t.Helper()
	found := false
	defer func() {
		if !found {
			term.t.Logf("the screen is %q", term.screen.String())
		}
	}()
	patience.Until(term.t, "the terminal shows "+text, func() bool {
		term.mu.Lock()
		defer term.mu.Unlock()
		rest := term.screen.String()[term.seen:]
		at := strings.Index(rest, text)
		if at < 0 {
			return false
		}
		before, found = rest[:at], true
		term.seen += at + len(text)
		return true
	})
	return before
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// onLinux skips a test elsewhere: Ctrl-Z is seen there alone, and there is a /proc to see it in.
func onLinux(t *testing.T) {
	if !isLinux {
		t.Skip("it needs Linux")
	}
}

func TestTerminal_ctrlZAndBackInTime(t *testing.T) {
	t.Parallel()
	onLinux(t)
	s := testserver.Redis(t)
	term := newTerminal(t)
	term.send(binary + " run " + s.URL() + "?ttl=1h name -- sh -c 'read line; echo \"<$line>\"; read line; echo \"<$line>\"; exit 6'\n")
	term.send("at first\n")
	term.expect("<at first>")
	term.send(ctrlZ)
	term.expect("Stopped")
	term.expect("ready> ")
	term.send("fg\n")
	term.send("typed\n")
	term.expect("<typed>")
	term.send("echo c''ode=$?\n")
	term.expect("code=6")
}

func TestTerminal_ctrlZAndBackTooLate(t *testing.T) {
	t.Parallel()
	onLinux(t)
	s := testserver.Redis(t)
	term := newTerminal(t)
	url := s.URL() + "?ttl=2s"
	term.send(binary + " run " + url + " name -- sh -c \"echo r''uns; read line; echo went o''n\"\n")
	term.expect("runs")
	term.send(ctrlZ)
	term.expect("Stopped")
	m := hold(t, url, "name") // it has expired
	term.send("fg\n")
	term.send("echo c''ode=$?\n")
	before := term.expect("code=79")
	assert.NotContains(t, before, "went on")
	require.NoError(t, m.Unlock(deadline(t)))
}

// Behind a pipe the terminal is ours, and the command in a group of its own, which Ctrl-Z does not reach.
func TestTerminal_ctrlZBehindAPipe_stopsTheCommandToo(t *testing.T) {
	t.Parallel()
	onLinux(t)
	s := testserver.Redis(t)
	dir := t.TempDir()
	// Not a loop of commands: a shell that is stopped while it starts one waits for that,
	// and is never seen to have stopped.
	require.NoError(t, syscall.Mkfifo(dir+"/go", 0o600))
	term := newTerminal(t)
	term.send(binary + " run " + s.URL() + "?ttl=1h name -- sh -c 'trap \"\" TSTP; echo $$ > " + dir + "/pid; " +
		"read line < " + dir + "/go; echo r''an' | cat\n")
	pid := pidOf(t, dir+"/pid")
	term.send(ctrlZ)
	term.expect("Stopped")
	awaitStopped(t, pid)
	term.send("fg\n")
	require.NoError(t, os.WriteFile(dir+"/go", []byte("go\n"), 0o600))
	term.expect("ran")
	term.send("echo c''ode=${PIPESTATUS[0]}\n")
	term.expect("code=0")
}

// The command asks for a keyboard that is not its own, and is stopped.
func TestTerminal_ctrlCBehindAPipe_endsACommandThatReads(t *testing.T) {
	t.Parallel()
	onLinux(t)
	pid := t.TempDir() + "/pid"
	term := newTerminal(t)
	term.send(binary + " run mem://x name -- sh -c 'echo $$ > " + pid + "; read line' | cat\n")
	awaitStopped(t, pidOf(t, pid))
	term.send(ctrlC)
	term.send("echo c''ode=$?\n")
	term.expect("code=")
}

func TestTerminal_afterBgIsTheShells(t *testing.T) {
	t.Parallel()
	onLinux(t)
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(dir+"/go", 0o600)) // not a loop: see above
	term := newTerminal(t)
	term.send(binary + " run mem://x?ttl=1h name -- sh -c 'echo r''uns; read line < " + dir + "/go'\n")
	term.expect("runs")
	term.send(ctrlZ)
	term.expect("Stopped")
	term.expect("ready> ")
	term.send("bg\n")
	term.expect("ready> ")
	term.send("wait; echo e''nded\n")
	require.NoError(t, os.WriteFile(dir+"/go", []byte("go\n"), 0o600))
	term.expect("ended")
	term.send("echo the shell r''eads\n")
	term.expect("the shell reads")
}

// awaitStopped waits until a process is stopped, as by SIGSTOP.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	patience.Until(t, "the command is stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
}

func TestTerminal_showsAProgressBarForLongWork(t *testing.T) {
	t.Parallel()
	term := newTerminal(t)
	for _, columns := range []int{40, 120} {
		term.send(fmt.Sprintf("stty cols %d; %s check --run '^(a held lock is not granted|tokens rise after an expiry)' mem://x\n", columns, binary))
		term.expect("\r\x1b[K")
		drawn := term.expect("3 promises kept")
		assert.Regexp(t, `█.* 2/3 `, drawn)
		for _, bar := range regexp.MustCompile(`[█░][^\r\n]*`).FindAllString(drawn, -1) {
			assert.Less(t, utf8.RuneCountInString(bar), columns, bar)
		}
		term.send("echo c''ode=$?\n")
		term.expect("code=0")
	}
}

func TestTerminal_ctrlCEndsTheCommandAndALoopOfTheShell(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	term := newTerminal(t)
	term.send("for i in 1 2 3; do " + binary + " run " + s.URL() + " name -- sh -c 'echo r''uns; exec sleep 1000'; done\n")
	term.expect("runs")
	term.send(ctrlC)
	before := term.expect("ready> ")
	assert.NotContains(t, before, "runs")
	term.send("echo c''ode=$?\n")
	term.expect("code=130")
	isFree(t, s.URL(), "name")
}
