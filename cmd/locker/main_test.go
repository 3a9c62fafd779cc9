package main

import (
	"bytes"
	"cmp"
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

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/job"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/target"
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
	c := testwait.Closed(locker.Open(t.Context(), url))(t)
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
	return beginCommand(t, exec.Command(binary, args...))
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

// wait returns the exit code. A check of all scenarios takes minutes.
func (p *process) wait() int {
	p.t.Helper()
	const most = 8 * time.Minute
	select {
	case <-p.ended:
	case <-time.After(most):
		p.t.Fatalf("%v has not ended after %v", p.cmd.Args, most)
	}
	if !errors.Is(p.err, exec.ErrWaitDelay) {
		return job.ExitCode(p.cmd.ProcessState)
	}
	p.t.Fatalf("%v has ended, but something that it started holds its pipes", p.cmd.Args)
	return 0
}

// result is what a run has left.
type result struct {
	code           int
	stdout, stderr string
}

func locked(t *testing.T, args ...string) result {
	t.Helper()
	return lockedWith(t, nil, args...)
}

func lockedWith(t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	p := beginCommand(t, cmd)
	code := p.wait()
	return result{code, p.stdout.String(), p.stderr.String()}
}

func TestHelp_namesEveryCommandAndExitCode(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"help"}} {
		o := locked(t, args...)
		assert.Zero(t, o.code)
		for _, c := range newRoot().Commands() {
			assert.Contains(t, o.stdout, c.Name(), "of %v", args)
		}
		for _, code := range []int{outcome.Broken, outcome.Usage, outcome.Unreachable, outcome.Held, outcome.Lost, outcome.CannotRun, outcome.NotFound} {
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

// refused has invalid command lines, and a part of the error of each. Arguments are between | signs,
// and URL is one that has a password: it may stand in a wrong place, and errors are shown to all who
// read the terminal, the log or cron's mail.
var refused = []struct{ args, says string }{
	{"rum", "did you mean run?"},
	{"inspekt", "did you mean inspect?"},
	{"unlock", "did you mean release?"}, // what other programs call it
	{"status", "did you mean inspect?"},
	{"ls", "did you mean list?"},
	{"lock", "did you mean run?"},
	{"run", "URL NAME -- COMMAND"},
	{"run|mem://x|name|true", "URL NAME -- COMMAND"},
	{"run|mem://x|name|--", "URL NAME -- COMMAND"},
	{"run|mem://x||--|true", "name of the lock is empty"},
	{"run|mem://x|\xff|--|true", "UTF-8"},
	{"run|--waits|mem://x|name|--|true", "--waits"},
	{"run|--wait|0s|mem://x|name|--|true", "--no-wait"},
	{"run|--wait|soon|mem://x|name|--|true", "--wait: must be a duration, as in 10s"},
	{"run|--wait|1s|--no-wait|mem://x|name|--|true", "no-wait"},
	{"run|--at-least|1m|-n|2|mem://x|name|--|true", "exclude each other"},
	{"run|--at-least|0s|mem://x|name|--|true", "more than 0"},
	{"run|--held-exit-code|256|mem://x|name|--|true", "from 0 to 255"},
	{"run|-n=0|mem://x|name|--|true", "-n 0: must be from 1 to 1000"},
	{"run|-n=1001|mem://x|name|--|true", "-n 1001: must be from 1 to 1000"},
	{"run|-n=two|mem://x|name|--|true", "--n: must be a whole number"},
	{"run|--shared|-n|2|mem://x|name|--|true", "-n and --shared exclude each other"},
	{"run|gopher://x|name|--|true", "unknown scheme"},
	{"run|redis://u:seCret@x:0|name|--|true", "malformed redis URL"},
	{"run|mem://x?color=red|name|--|true", "color"},
	{"run|mem://x?ttl=1ms|name|--|true", "at least 5ms"},
	{"run|redis://x?require=failover|name|--|true", "not promised"},
	{"run|-|name|--|true", "LOCKER_URL is empty"},
	{"check", "or a program, with --exec"},
	{"check|mem://x|mem://y", "one URL"},
	{"check|--run|(|mem://x", "--run"},
	{"check|--run|no such scenario|mem://x", "no scenario"},
	{"check|--output|yaml|mem://x", "must be one of text"},
	{"check|--ttl|1ms|mem://x", "at least 5ms"},
	{"check|--ttl|2500ms|etcd://127.0.0.1:1", "whole"},
	{"check|--clients|3|mem://x", "--clients"},
	{"check|--exec|true|mem://x", "the place of a URL"},
	{"check|--address|h:1|mem://x", "are for --exec"},
	{"check|--exec|true|--server|true", "--server needs"},
	{"check|--exec|true|--server-forgets", "is for --server"},
	{"check|--exec|true|--ttl|1us", "must be whole"},
	{"bench", "at least one URL"},
	{"bench|--rounds|0|mem://x", "--rounds"},
	{"bench|--duration|2h|mem://x", "--duration"},
	{"bench|--output|junit|mem://x", "must be one of"},
	{"bench|gopher://x", "unknown scheme"},
	{"check|--prefix|redis://u:seCret@h|mem://x", "--prefix is a URL"},
	{"compare|--prefix|redis://u:seCret@h|mem://x", "--prefix is a URL"},
	{"compare", "at least one URL"},
	{"compare|--output|html|mem://x", "must be one of"},
	{"compare|--run|(|mem://x", "--run"},
	{"inspect|mem://x", "URL NAME"},
	{"inspect|mem://x|", "empty"},
	{"inspect|gopher://x|name", "unknown scheme"},
	{"inspect|--output|xml|mem://x|", "must be one of"},
	{"list", "URL [PREFIX]"},
	{"list|mem://x|a|b", "URL [PREFIX]"},
	{"list|mem://x|\xff", "UTF-8"},
	{"list|mem://x|redis://u:seCret@h", "the prefix is a URL"},
	{"list|--output|xml|mem://x", "must be one of"},
	{"release|mem://x|name", "--force"},
	{"release|--hold|7|mem://x|name", "--force"},
	{"release|--force|mem://x|name", "--hold is missing"},
	{"release|--force|--hold|7|mem://x", "URL NAME"},
	{"release|--force|--hold|7|mem://x|", "empty"},
	{"release|--force|--hold|7|mem://x|redis://u:seCret@h", "is a URL"},
	{"watch", "URL [NAME…]"},
	{"watch|--interval|1ms|mem://x", "at least 100ms"},

	{"URL|backup|--|true", "unknown command"},
	{"-URL|run", "unknown flag -r"},
	{"--URL|run", "unknown flag"},
	{"--version=URL", "--version"},
	{"--help=URL", "--help"},
	{"help|URL", ""},
	{"completion|URL", ""},
	{"completion|bash|URL", "takes no arguments"},
	{"completion|bash|--no-descriptions=URL", "--no-descriptions"},

	{"run|URL|backup|true", "URL NAME -- COMMAND"},
	{"run|-|URL|backup|--|true", "URL NAME -- COMMAND"},
	{"run|mem://x|URL|--|true", "the name of the lock is a URL"},
	{"run|mem://x|URL\xff|--|true", "UTF-8"},
	{"run|--wait=URL|backup|--|true", "--wait"},
	{"run|--no-wait=URL|backup|--|true", "--no-wait"},
	{"run|-q=URL|backup|--|true", "--quiet"},
	{"run|--held-exit-code|URL|backup|--|true", "--held-exit-code"},
	{"run|-xURL|backup|--|true", "unknown flag -x"},
	{"run|--password=URL|backup|--|true", "unknown flag --password"},
	{"run|--URL|backup|--|true", "unknown flag"},
	{"run|---URL|backup|--|true", "flag"},
	{"run|mem://x|backup|mysqldump|-pseCret", "unknown flag -p"},
	{"run|mem://x|backup|--|URL|true", "command not found"},
	{"run|mem://x|backup|--|PASSWORD=seCret|true", "command not found"},
	{"run|mem://x|backup|--|/URL", "command not found"},
	{"run|mem://x|backup|--|main_test.go/URL", "cannot be executed"},

	{"check|mem://x|URL", "want one URL"},
	{"check|--ttl|URL|mem://x", "--ttl"},
	{"check|-oURL|mem://x", "--output"},
	{"check|--run|URL(|mem://x", "--run"},
	{"check|--prefix|URL", "want one URL"},
	{"check|--known|URL|mem://x", "--known: the file: no such file"},
	{"check|--replay|URL", "--replay: the file: no such file"},
	{"bench|--rounds|URL|mem://x", "--rounds"},
	{"watch|--for|1s|--html|URL/page.html|mem://x", "--html"},
	{"inspect|URL", "URL NAME"},
	{"inspect|mem://x|URL", "the name of the lock is a URL"},
}

func TestUsage_saysWhatIsWrongAndNoSecret(t *testing.T) {
	t.Parallel()
	codes := map[string]int{"command not found": outcome.NotFound, "cannot be executed": outcome.CannotRun}
	for n, url := range []string{"redis://:seCret@127.0.0.1:1/0", "rediss://user:seCret@h?tls_ca=x"} {
		for _, c := range refused {
			line := strings.ReplaceAll(c.args, "URL", url)
			if n > 0 && line == c.args {
				continue
			}
			o := lockedWith(t, []string{"LOCKER_URL="}, strings.Split(line, "|")...)
			assert.NotContains(t, o.stderr+o.stdout, "eCret", "%q", line)
			if c.says == "" { // help, which is a success
				continue
			}
			assert.Equal(t, cmp.Or(codes[c.says], outcome.Usage), o.code, "%q", line)
			assert.Contains(t, o.stderr, c.says, "%q", line)
			assert.Equal(t, 1, strings.Count(o.stderr, "\n"), "%q: one line, not %q", line, o.stderr)
			assert.Empty(t, o.stdout, "%q", line)
		}
	}
}

func TestOutage_isAnExitCodeOfItsOwn(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Kill()
	for _, args := range []string{"inspect|URL|name", "list|URL", "release|--force|--hold|7|URL|name", "check|URL", "bench|URL", "watch|URL"} {
		o := locked(t, strings.Split(strings.ReplaceAll(args, "URL", s.URL()), "|")...)
		assert.Equal(t, outcome.Unreachable, o.code, "%q: %s", args, o.stderr)
		assert.NotEmpty(t, o.stderr, args)
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
		assert.Equal(t, want, target.Parse(url).String())
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
			assert.Equal(t, outcome.Usage, o.code, "%q: %s", args, o.stderr)
			assert.NotContains(t, o.stderr+o.stdout, "hid", "%q", args)
		}
	}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	return testwait.Context(t, time.Duration(patience))
}

func TestMan_hasWhatHelpHas(t *testing.T) {
	var page bytes.Buffer
	root := newRoot()
	require.NoError(t, writeMan(&page, root))
	plain := strings.ReplaceAll(page.String(), `\-`, "-")
	for _, c := range root.Commands() {
		if c.Name() == "help" || c.Name() == "completion" || c.Hidden {
			continue
		}
		assert.Contains(t, plain, "\n.SS "+c.CommandPath(), c.Name())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { assert.Contains(t, plain, "--"+f.Name, c.Name()) })
	}
	assert.Contains(t, plain, exitHelp)
	for line := range strings.Lines(plain) {
		assert.NotRegexp(t, `^'|^\.([^A-Zfn]|$)`, line, "no line of a text is taken for a request")
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		return // what it would say cannot be seen here
	}
	cmd := exec.Command(groff, "-K", "utf8", "-man", "-ww", "-z")
	cmd.Stdin = &page
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Empty(t, string(out), "warnings")
}
