package main

import (
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// programVariable has this test binary be the program, so that it too is under the race detector.
const programVariable = "LOCKER_EXAMPLE_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(testserver.Tests(m))
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	p := exec.CommandContext(testwait.Context(t, 2*time.Minute), os.Args[0], args...)
	p.Env = append(os.Environ(), programVariable+"=yes")
	return p
}

func TestProgram_withoutAFileShowsAllThreeAndEnds(t *testing.T) {
	t.Parallel()
	out, err := program(t).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assertOnce(t, string(out))
	assert.Contains(t, string(out), "report of ")
}

// assertOnce is about what all processes have said.
func assertOnce(t *testing.T, said string) {
	t.Helper()
	for _, what := range []string{"applied 00001_reports.sql", "applied 00002_reports_token.sql", "issued a certificate for [shop.example]"} {
		assert.Equal(t, 1, strings.Count(said, what), "%s:\n%s", what, said)
	}
}

// write makes a file of the lock's URL and of more, which may replace what is there.
func write(t *testing.T, dir, lock, more string) (file string) {
	t.Helper()
	settings := map[string]string{
		"lock": lock, "database": filepath.Join(dir, "shop 100%.sqlite"), "certificates": filepath.Join(dir, "certificates"),
		"domain": "shop.example", "listen": "localhost:0", "report": "{every: 3s, minimum: 2s}",
	}
	for line := range strings.Lines(more) {
		key, value, _ := strings.Cut(line, ": ")
		settings[key] = strings.TrimSpace(value)
	}
	var text strings.Builder
	for key, value := range settings {
		if value != "" {
			text.WriteString(key + ": " + value + "\n")
		}
	}
	file = filepath.Join(dir, "service.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	return file
}

func TestProgram_refusesAFileThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, lock, more, want string }{
		{"an unknown key", "", "locks: redis://:s3cret@h", "field locks not found"},
		{"what is missing", "", "database: ", "lock: is missing\ndatabase: is missing"},
		{"no domain", "mem://x", "domain: a b", `domain: "a b": there is no certificate for such a name`},
		{"a minimum that lasts until the next tick", "mem://x", "report: {every: 2s, minimum: 2s}", "report: minimum: 2s: has to be"},
		{"an unknown parameter", "redis://:s3cret@h?tll=3s", "", `lock: locker: open: redis:// does not know the parameter "tll"`},
		{"a backend whose tokens may fall", "redlock://:s3cret@h1,h2,h3", "", "lock: locker: open: not supported by the backend"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out, err := program(t, write(t, dir, c.lock, c.more)).CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s", out)
			assert.Equal(t, 1, exit.ExitCode())
			assert.Contains(t, string(out), c.want)
			assert.NotContains(t, string(out), "s3cret")
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Len(t, left, 1, "the file alone: nothing was begun")
		})
	}
}

func TestLoad_takesTheFileThatIsShown(t *testing.T) {
	t.Parallel()
	c, err := load("service.yaml")
	require.NoError(t, err)
	assert.Equal(t, "redis://localhost:6379", c.Lock)
	assert.Equal(t, job{Every: 10 * time.Second, Minimum: 2 * time.Second}, c.Report)
}

// A holder of an earlier token comes too late, and a tick that has its row gets no other, whoever comes.
func TestReport_isWrittenOnce(t *testing.T) {
	t.Parallel()
	client, err := locker.Open(t.Context(), "mem://"+t.Name())
	require.NoError(t, err)
	defer client.Close()
	var out strings.Builder
	s := &service{config: config{Report: job{Every: 1000 * time.Hour}}, log: log.New(&out, "", 0)}
	s.db, err = openSQLite(filepath.Join(t.TempDir(), "db"))
	require.NoError(t, err)
	defer s.db.Close()
	require.NoError(t, s.migrate(t.Context(), client.Mutex("migrate")))
	require.NoError(t, s.report(t.Context(), 8))
	require.ErrorIs(t, s.report(t.Context(), 7), fence.ErrStale)
	require.NoError(t, s.report(t.Context(), 9))
	var tokens string
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT group_concat(token) FROM reports").Scan(&tokens))
	assert.Equal(t, "8", tokens)
	assert.Contains(t, out.String(), "stale", "gocron drops it")
	assert.Contains(t, out.String(), "is done already")
}
