package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/job"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// binary is what the tests drive.
var binary string

func TestMain(m *testing.M) { os.Exit(withBinary(m)) }

func withBinary(m *testing.M) int {
	dir, err := os.MkdirTemp("", "locker")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "locker.exe") // a name that Windows runs, too
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	// Under nohup hang-ups are ignored, and so by all that the tests start, unless somebody here wants to hear of them.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	return testserver.Tests(m).Run()
}

// patience is for what happens at once on a machine that is not busy.
const patience = testwait.Patience(30 * time.Second)

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

// process is the program, running.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr *bytes.Buffer // not to be read before wait
	ended          chan struct{}
	err            error
}

// start starts the program, and kills it at the end of the test, if it has not ended.
func begin(t *testing.T, args ...string) *process {
	t.Helper()
	return beginWith(t, nil, args...)
}

func beginWith(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	return beginCommand(t, cmd)
}

// beginCommand is begin of another program, that starts ours.
func beginCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, stdout: new(bytes.Buffer), stderr: new(bytes.Buffer), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	p.cmd.WaitDelay = 10 * time.Second // a command that outlives the program has its pipes
	require.NoError(t, p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		select {
		case <-p.ended:
		default:
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	})
	return p
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	return p.waitFor(time.Duration(patience))
}

func (p *process) waitFor(d time.Duration) int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(d):
		p.t.Fatalf("%v has not ended after %v", p.cmd.Args, d)
	}
	if !errors.Is(p.err, exec.ErrWaitDelay) {
		return job.ExitCode(p.cmd.ProcessState)
	}
	p.t.Fatalf("%v has ended, but something that it started holds its pipes", p.cmd.Args)
	return 0
}

// outcome is what a run has left.
type outcome struct {
	code           int
	stdout, stderr string
}

func locked(t *testing.T, args ...string) outcome {
	t.Helper()
	return lockedWith(t, nil, args...)
}

func lockedWith(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	p := beginWith(t, env, args...)
	code := p.wait()
	return outcome{code, p.stdout.String(), p.stderr.String()}
}

func TestHelp_namesEveryCommandAndExitCode(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"help"}} {
		o := locked(t, args...)
		assert.Zero(t, o.code)
		for _, c := range newRoot().Commands() {
			assert.Contains(t, o.stdout, c.Name(), "of %v", args)
		}
		for _, code := range []int{exitBroken, exitUsage, exitUnreachable, exitHeld, exitLost, exitCannotRun, exitNotFound} {
			assert.Contains(t, o.stdout, fmt.Sprint(code), "of %v", args)
		}
		assert.Contains(t, o.stdout, "LOCKER_URL")
	}
}

func TestHelp_ofEachCommandHasAnExampleAndFitsATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range newRoot().Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		o := locked(t, c.Name(), "--help")
		assert.Zero(t, o.code)
		assert.Contains(t, o.stdout, "Examples:", c.Name())
		for line := range strings.Lines(o.stdout) {
			assert.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), columns, "%s: %s", c.Name(), line)
		}
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		o := locked(t, "completion", shell)
		assert.Zero(t, o.code)
		assert.Contains(t, o.stdout, "locker")
	}
	assert.Contains(t, locked(t, "__complete", "run", "").stdout, "zookeeper://")
	assert.Contains(t, locked(t, "__complete", "").stdout, "run\t")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/backup-all", nil, 0o700))
	path := []string{"PATH=" + dir}
	assert.Equal(t, "backup-all\n:0\n", lockedWith(t, path, "__complete", "run", "mem://x", "name", "--", "back").stdout, "a program")
	assert.Equal(t, ":0\n", lockedWith(t, path, "__complete", "run", "mem://x", "name", "--", "backup-all", "").stdout, "files")
}

func TestUsage_thatMakesNoSenseSaysWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"rum"}, "did you mean run?"},
		{[]string{"run"}, "URL NAME -- COMMAND"},
		{[]string{"run", "mem://x", "name", "true"}, "URL NAME -- COMMAND"},
		{[]string{"run", "mem://x", "name", "--"}, "URL NAME -- COMMAND"},
		{[]string{"run", "mem://x", "", "--", "true"}, "name of the lock is empty"},
		{[]string{"run", "mem://x", "\xff", "--", "true"}, "UTF-8"},
		{[]string{"run", "--waits", "mem://x", "name", "--", "true"}, "--waits"},
		{[]string{"run", "--wait", "0s", "mem://x", "name", "--", "true"}, "--no-wait"},
		{[]string{"run", "--wait", "soon", "mem://x", "name", "--", "true"}, "--wait: must be a duration, as in 10s"},
		{[]string{"run", "--wait", "1s", "--no-wait", "mem://x", "name", "--", "true"}, "no-wait"},
		{[]string{"run", "--at-least", "1m", "-n", "2", "mem://x", "name", "--", "true"}, "exclude each other"},
		{[]string{"run", "--at-least", "0s", "mem://x", "name", "--", "true"}, "more than 0"},
		{[]string{"run", "--held-exit-code", "256", "mem://x", "name", "--", "true"}, "from 0 to 255"},
		{[]string{"run", "gopher://x", "name", "--", "true"}, "unknown scheme"},
		{[]string{"run", "redis://u:secret@x:0", "name", "--", "true"}, "malformed redis URL"},
		{[]string{"run", "mem://x?color=red", "name", "--", "true"}, "color"},
		{[]string{"run", "mem://x?ttl=1ms", "name", "--", "true"}, "at least 5ms"},
		{[]string{"run", "redis://x?require=failover", "name", "--", "true"}, "not promised"},
		{[]string{"run", "-", "name", "--", "true"}, "LOCKER_URL is empty"},
	} {
		o := lockedWith(t, []string{"LOCKER_URL="}, c.args...)
		assert.Equal(t, exitUsage, o.code, "%q", c.args)
		assert.Contains(t, o.stderr, c.says, "%q", c.args)
		assert.NotContains(t, o.stderr, "secret", "%q", c.args)
		assert.Equal(t, 1, strings.Count(o.stderr, "\n"), "%q: one line, not %q", c.args, o.stderr)
		assert.Empty(t, o.stdout, "%q", c.args)
	}
}

func TestDeployment_showsNothingSecret(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://localhost:6379/0?ttl=1s":                       "redis://localhost:6379/0",
		"redis://u:p@h1:1,h2:2/3?sentinel_password=s":           "redis://h1:1,h2:2/3",
		"redis://u:p%40@h?password=a%40b":                       "redis://h",
		"mem://x":                                               "mem://x",
		"etcds://h1:2379,h2:2379,h3:2379?tls_ca=/etc/ca.pem&x=": "etcds://h1:2379,h2:2379,h3:2379",
	} {
		assert.Equal(t, want, parse(url).String())
	}
}

// A password in the wrong place looks like something else.
func TestUsage_showsNoPieceOfAURLThatIsRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://user:hid/den@host", "redis://user:hid?den@host", "redis://user:hid#den@host", "hidden@host", "redis://hidden:70000", "hidden",
	} {
		for _, args := range [][]string{
			{"run", url, "name", "--", "true"}, {"inspect", url, "name"}, {"check", url}, {"bench", url}, {"compare", "mem://x", url},
		} {
			o := locked(t, args...)
			assert.Equal(t, exitUsage, o.code, "%q: %s", args, o.stderr)
			assert.NotContains(t, o.stderr+o.stdout, "hid", "%q", args)
		}
	}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	return testwait.Context(t, time.Duration(patience))
}
