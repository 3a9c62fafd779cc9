package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

var runs = regexp.MustCompile(`worker \d+ of process \d+ runs "(\w+)"`)

// ran are the jobs that somebody ran, as often as they were.
func ran(output string) (jobs []string) {
	for _, match := range runs.FindAllStringSubmatch(output, -1) {
		jobs = append(jobs, match[1])
	}
	return jobs
}

func noEnvironment(string) string { return "" }

func TestRun_inMemoryWithoutAnySettings(t *testing.T) {
	c, err := configure(nil, noEnvironment, io.Discard)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, run(t.Context(), c, &out))
	assert.ElementsMatch(t, []string{"backup", "invoices", "newsletter"}, ran(out.String()), "each once:\n%s", &out)
	assert.Contains(t, out.String(), "locks by mem://, says the default")
}

func TestTwoProcesses_onRedis(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig("requirepass s3cret"))
	runEachJobOnce(t, "redis://:s3cret@"+s.Addr())
}

// runEachJobOnce has two processes run the plan. One is told by the environment, the other by a file. What they have in common are
// the server and the ledger.
func runEachJobOnce(t *testing.T, url string) {
	t.Helper()
	scheme, _, _ := strings.Cut(url, "://")
	dir := t.TempDir()
	program, ledger, file := filepath.Join(dir, "pluggable"), filepath.Join(dir, "ledger"), filepath.Join(dir, "config.yaml")
	build, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", build)
	require.NoError(t, os.WriteFile(file, []byte("locks: "+url+"\nledger: "+ledger+"\n"), 0o600))

	byEnvironment := exec.CommandContext(t.Context(), program, "-ledger", ledger)
	byEnvironment.Env = append(os.Environ(), locksVariable+"="+url)
	byFile := exec.CommandContext(t.Context(), program, "-config", file)
	var out [2]bytes.Buffer
	for i, p := range []*exec.Cmd{byEnvironment, byFile} {
		p.Stdout, p.Stderr = &out[i], &out[i]
		require.NoError(t, p.Start())
	}
	for i, p := range []*exec.Cmd{byEnvironment, byFile} {
		require.NoError(t, p.Wait(), "%s", &out[i])
	}
	all := out[0].String() + out[1].String()
	assert.ElementsMatch(t, []string{"backup", "invoices", "newsletter"}, ran(all), "each once:\n%s", all)
	assert.Contains(t, all, "locks by "+scheme+"://, says the environment")
	assert.Contains(t, all, "locks by "+scheme+"://, says "+file)
	assert.NotContains(t, all, "s3cret")

	late, err := exec.CommandContext(t.Context(), program, "-config", file).CombinedOutput()
	require.NoError(t, err, "%s", late)
	assert.Empty(t, ran(string(late)), "all is done")
}

func TestRun_refusesABackendThatIsTooWeak(t *testing.T) {
	err := run(t.Context(), config{Locks: "redlock://u:s3cret@h1,h2,h3", Jobs: []string{"x"}, Workers: 2}, io.Discard)
	require.ErrorIs(t, err, locker.ErrUnsupported)
	require.EqualError(t, err, "locker: open: not supported by the backend: "+
		`"fencing" is conditional: promised only while clocks are sane, and nodes keep their data and evict no keys`)
}

func TestConfigure_flagEnvironmentFileDefault(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("locks: mem://file\njobs: [one]\nworkers: 7\nledger: /from/file\n"), 0o600))
	environment := func(name string) string {
		if name == locksVariable {
			return "mem://environment"
		}
		return ""
	}
	for _, c := range []struct {
		args        []string
		getenv      func(string) string
		locks, from string
	}{
		{nil, noEnvironment, "mem://pluggable", "the default"},
		{[]string{"-config", file}, noEnvironment, "mem://file", file},
		{[]string{"-config", file}, environment, "mem://environment", "the environment"},
		{[]string{"-config", file, "-locks", "mem://flag"}, environment, "mem://flag", "the flag -locks"},
		{[]string{"-config", "pluggable.yaml"}, noEnvironment, "mem://plan?ttl=10s&renew=true", "pluggable.yaml"},
	} {
		got, err := configure(c.args, c.getenv, io.Discard)
		require.NoError(t, err)
		assert.Equal(t, c.locks, got.Locks)
		assert.Equal(t, c.from, got.from)
	}
	got, err := configure([]string{"-config", file, "-ledger", "/from/flag"}, noEnvironment, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, []string{"one"}, got.Jobs)
	assert.Equal(t, 7, got.Workers)
	assert.Equal(t, "/from/flag", got.Ledger)
}

func TestConfigure_refuses(t *testing.T) {
	for text, want := range map[string]string{
		"lock: mem://x":             "lock",
		"locks: [redis://:s3cret@]": "line 1",
		"workers: 0":                "worker",
		"jobs: []":                  "job",
	} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := configure([]string{"-config", file}, noEnvironment, io.Discard)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "s3cret")
	}
	_, err := configure([]string{"-config", "/no/such.yaml"}, noEnvironment, io.Discard)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = configure([]string{"redis://:s3cret@h"}, noEnvironment, io.Discard)
	require.EqualError(t, err, "there are arguments that are no flags: a URL goes with -locks")
}

func TestLedger_refusesStaleTokens(t *testing.T) {
	l, remove, err := openLedger("")
	require.NoError(t, err)
	defer remove()
	done, err := l.Begin(t.Context(), "a/b", 5)
	require.NoError(t, err)
	assert.False(t, done)
	for _, stale := range []uint64{0, 4} {
		_, err = l.Begin(t.Context(), "a/b", stale)
		require.ErrorContains(t, err, "refuses")
		require.ErrorContains(t, l.Finish(t.Context(), "a/b", stale), "refuses")
	}
	require.NoError(t, l.Finish(t.Context(), "a/b", 5))
	done, err = l.Begin(t.Context(), "a/b", 6)
	require.NoError(t, err)
	assert.True(t, done)
	_, err = l.Begin(t.Context(), "a%2Fb", 1)
	require.NoError(t, err, "another job")
}
