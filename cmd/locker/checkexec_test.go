package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/server"
	"github.com/go-locker/locker/conformance"
	programs "github.com/go-locker/locker/conformance/program"
	"github.com/go-locker/locker/internal/tb"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// served is the command line that serves the locks of a server.
func served(url string) string { return binary + " serve-lock " + url }

// A lock that keeps its promises keeps them through the pipe.
func TestCheckExec_ofOurOwnLock(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	run := "^(a |an |the |many |Lock |TryLock |Unlock |Lost |Extend |tokens |different|names|Deadline)"
	if !testwait.Thorough() {
		run = quick
	}
	r := checked(t, 0, "--run", run, "--ttl", "500ms", "--exec", served(s.URL()), "--address", s.Addr())
	assert.Zero(t, r.Count(conformance.Broken), "%v", r.Notable())
	assert.NotZero(t, r.Count(conformance.Kept))
	assert.Contains(t, r.Backend, "redis")
	if testwait.Thorough() {
		assert.Greater(t, r.Count(conformance.Kept), 80)
	}
}

// Without --address and --server nothing is done to the network and to servers, and the report says so.
func TestCheckExec_saysWhatIsSkippedAndWhy(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	o := locked(t, "check", "--exec", served(s.URL()), "--run", "reply was lost has freed|server is silent|readers share|lags most takes over|^a held lock is not")
	require.Zero(t, o.code, o.stderr)
	for _, line := range []string{
		"skipped   1: it needs --address", ": it needs --server", ": the protocol for programs has no RW",
		": the protocol for programs has no Faults.FailOver", "promises kept, 0 broken",
	} {
		assert.Contains(t, o.stdout, line)
	}
	assert.NotContains(t, o.stdout, "server in use")
}

// A server that the check starts is stopped, killed and restarted, and does not outlive it.
func TestCheckExec_ofAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no server is stopped there")
	}
	addr, forgets := ownServer(t)
	command := forgets + " --appendonly yes --appendfsync always"
	run := "the fault (StopServer|KillServer|Through|Process) acts|an outage is an error"
	r := checked(t, 0, "--exec", served("redis://"+addr), "--address", addr, "--server", command, "--run", run)
	assert.Equal(t, 5, r.Count(conformance.Kept), "%v", r.Results)
	patience.Until(t, "the server has ended", func() bool { return !server.Accepts(addr) })

	r = checked(t, outcome.Broken, "--exec", served("redis://"+addr), "--address", addr, "--server", forgets,
		"--run", "a hold lasts though the server restarts with its data")
	require.Len(t, r.Results, 1)
	assert.Contains(t, r.Results[0].Seen, "--server-forgets", "a server without persistence")

	o := locked(t, "check", "--exec", served("redis://"+addr), "--address", addr, "--server", "echo no memory; exit 3")
	assert.Equal(t, outcome.Unreachable, o.code)
	assert.Contains(t, o.stderr, "it has ended before it took connections (it has to run in the foreground); it wrote:\nno memory")

	p := begin(t, "check", "--exec", served("redis://"+addr), "--address", addr, "--server", command)
	patience.Until(t, "the server answers", func() bool { return server.Accepts(addr) })
	require.NoError(t, p.cmd.Process.Kill())
	patience.Until(t, "the server has ended with the check that was killed", func() bool { return !server.Accepts(addr) })
}

// What a program or a server has put into a session of its own is ended with the check, and named.
func TestCheckExec_endsWhatIsLeftRunning(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("orphans become ours on Linux alone")
	}
	mark := filepath.Join(t.TempDir(), "left")
	require.NoError(t, os.Symlink("/bin/sleep", mark))
	leaves := fmt.Sprintf("(setsid %s 3600 </dev/null >/dev/null 2>&1 &); exec %s", mark, served("mem://x"))
	r := checked(t, outcome.Broken, "--exec", leaves, "--run", "^a held lock is not granted to another") // memory is no lock of two processes
	assert.Regexp(t, `^left running by the program or its server, and killed: left \(\d+\)`, r.Left)
	pid := regexp.MustCompile(`\d+`).FindString(r.Left)
	assert.NoDirExists(t, "/proc/"+pid)

	addr, command := ownServer(t)
	daemon := command + " --daemonize yes"
	o := locked(t, "check", "--exec", served("redis://"+addr), "--address", addr, "--server", daemon+"; sleep 2", "--run", "^a held lock is not granted to another")
	assert.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "left running by the program or its server, and killed: redis-server")
	assert.False(t, server.Accepts(addr))

	o = locked(t, "check", "--exec", served("redis://"+addr), "--address", addr, "--server", daemon)
	assert.Equal(t, outcome.Unreachable, o.code)
	assert.Contains(t, o.stderr, "in the foreground")
	assert.Contains(t, o.stderr, "and killed: redis-server")
	assert.False(t, server.Accepts(addr))
}

// ownServer returns the address of a Redis that a check is to start, and its command.
func ownServer(t *testing.T) (addr, command string) {
	t.Helper()
	s := testserver.Redis(t) // whose port will be free
	s.Kill()
	_, port, _ := strings.Cut(s.Addr(), ":")
	for _, name := range []string{filepath.Join("..", "..", ".bin", "redis-server"), "redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			path, err = filepath.Abs(path)
			require.NoError(t, err)
			return s.Addr(), fmt.Sprintf("%s --port %s --bind 127.0.0.1 --save '' --dir %s", path, port, t.TempDir())
		}
	}
	t.Fatal("there is a server, and no redis-server")
	return "", ""
}

func TestCheckExec_trace(t *testing.T) {
	t.Parallel()
	o := locked(t, "check", "--exec", served("mem://x"), "--trace")
	assert.Equal(t, outcome.Broken, o.code, "two processes have no memory in common")
	assert.Contains(t, o.stderr, "does not keep to the protocol")
	assert.Contains(t, o.stdout, `is asked {"id":1,"op":"open","locker":"a"`)

	s := testserver.Redis(t)
	o = locked(t, "check", "--exec", served(s.URL()), "--trace")
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "the program keeps to the protocol")

	o = locked(t, "check", "--exec", served(s.URL()), "--trace", "--run", "^a held lock is not granted to another")
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "1 promises kept")
	assert.Contains(t, o.stderr, `{"id":1,"op":"open"`)
}

// A lock that is none is broken, and a program that is none is not.
func TestCheckExec_verdicts(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no shell")
	}
	const everyone = `echo '{"protocol":1,"capabilities":["try","unlock"]}'
		while read -r line; do id=${line#*:}; echo "{\"id\":${id%%,*},\"result\":\"ok\"}"; done`
	r := checked(t, outcome.Broken, "--exec", everyone, "--run", "^a held lock is not granted to another")
	assert.Equal(t, 1, r.Count(conformance.Broken))

	r = checked(t, outcome.Broken, "--exec", everyone, "--limit", "3s")
	assert.NotZero(t, r.NotRun, "a promise is broken, whether or not there was time for all")

	o := locked(t, "check", "--exec", "echo hello")
	assert.Equal(t, outcome.Unreachable, o.code)
	assert.Contains(t, o.stderr, `its first line is not what a program begins with: "hello"`)
}

// The lock in the middle of the page that tells how to write one.
func TestCheckExec_ofTheLockOnThePage(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	page, err := os.ReadFile("../../docs/evidence/judge-any-language.md")
	require.NoError(t, err)
	code := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, code)
	file := filepath.Join(t.TempDir(), "lock.py")
	require.NoError(t, os.WriteFile(file, code[1], 0o600))
	program := python + " " + file
	o := locked(t, "check", "--exec", program, "--trace")
	require.Zero(t, o.code, o.stdout+o.stderr)
	run := quick
	if testwait.Thorough() {
		run = "."
	}
	r := checked(t, 0, "--exec", program, "--run", run, "--ttl", "300ms")
	assert.NotZero(t, r.Count(conformance.Kept))
}

// What is sent and answered is what the schema says, on the page too.
func TestSchema_isThatOfTheTraffic(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile("../../docs/judge/protocol.schema.json")
	require.NoError(t, err)
	valid := func(line string) error {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		require.NoError(t, err, line)
		return schema.Validate(value)
	}
	s := testserver.Redis(t)
	said, err := os.Create(filepath.Join(t.TempDir(), "trace"))
	require.NoError(t, err)
	defer said.Close()
	scope := tb.New(t.Context(), nil)
	defer scope.End()
	require.NoError(t, scope.Run(func() {
		program := programs.Program{
			Command: func() *exec.Cmd { return exec.Command(binary, "serve-lock", s.URL()) },
			TTL:     500 * time.Millisecond, Address: s.Addr(), Trace: said,
		}
		h := programs.Exec(scope, program)
		for _, scenario := range conformance.Scenarios() {
			if regexp.MustCompile(quick + "|^Lock re|^Deadline|^Lost is|^a renewed|^an empty").MatchString(scenario.Name) {
				r := conformance.Examine(scope, scenario, h)
				assert.NotEqual(t, conformance.Broken, r.Outcome, r.String())
			}
		}
		program.TTL, program.Address = time.Second, ""
		assert.Empty(t, programs.Try(scope, program))
	}))
	trace, err := os.ReadFile(said.Name())
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/evidence/judge-any-language.md")
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?:is asked|answers ) (\{.*\})`).FindAllStringSubmatch(string(trace), -1)
	examples := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, examples)
	for line := range strings.Lines(string(examples[1])) {
		lines = append(lines, []string{line, line})
	}
	ops := map[string]bool{}
	for _, line := range lines {
		require.NoError(t, valid(line[1]), line[1])
		var r struct{ Op, Result string }
		require.NoError(t, json.Unmarshal([]byte(line[1]), &r))
		ops[r.Op+r.Result] = true
	}
	for _, want := range []string{
		"", "open", "lock", "try", "unlock", "extend", "token", "deadline", "lost", "cancel", "close", "ok", "held", "not-held", "error",
	} {
		assert.True(t, ops[want], "no line of %q", want)
	}
	for _, line := range []string{
		`{"protocol":2,"capabilities":["lock","unlock"]}`, `{"protocol":1,"capabilities":["lock"]}`, `{"id":0,"result":"ok"}`,
		`{"id":1,"result":"fine"}`, `{"id":1,"result":"error"}`, `{"id":1,"op":"open","locker":"a"}`, `{"id":1,"op":"cancel"}`,
		`{"id":1,"op":"lock"}`, `{"id":1,"result":"ok","token":-1}`, `{"id":1,"op":"lock","locker":"a","limit_ms":0.5}`, `[]`,
	} {
		assert.Error(t, valid(line), line)
	}
}
