package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/check"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// quick is a selection of scenarios that take little time.
const quick = "^(a held lock is not granted|TryLock of|the token is 0 without|tokens rise from process|readers share)"

// checked runs a check that prints JSON.
func checked(t *testing.T, wantCode int, args ...string) check.Report {
	t.Helper()
	o := locked(t, append([]string{"check", "--output", "json"}, args...)...)
	require.Equal(t, wantCode, o.code, o.stderr)
	var r check.Report
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &r))
	return r
}

// wantForgotten fails if a key is left that does not expire.
func wantForgotten(t *testing.T, s *testserver.RedisServer) {
	t.Helper()
	for _, key := range s.Do("KEYS", "*").([]any) {
		assert.NotEqual(t, int64(-1), s.Do("PTTL", key.(string)), "%s stays for good", key)
	}
}

// Names that others may use, too, are theirs.
func TestCheck_underAPrefixOfOthers_leavesTheirLocksAlone(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	const prefix = "?prefix=theirs&ttl=1h"
	var held []*locker.Mutex
	for _, name := range []string{"probe", "a", "0", "null", ".", "/"} {
		c := testwait.Closed(locker.Open(t.Context(), s.URL()+prefix))(t)
		held = append(held, c.Mutex(name))
		require.NoError(t, held[len(held)-1].Lock(deadline(t)))
	}
	r := checked(t, 0, "--prefix", "theirs", "--run", "^any name of UTF-8|^Name is the name", s.URL())
	assert.Equal(t, 2, r.Count(conformance.Kept), "%v", r.Results)
	assert.Empty(t, r.Left)
	for _, m := range held {
		require.NoError(t, m.Unlock(deadline(t)), "%s", m.Name())
	}
	assert.Equal(t, int64(1), s.Do("EXISTS", "{theirs:%mark}"), "what makes their tokens rise")
}

// What is done to connections and processes is done to its own.
func TestCheck_cutsConnectionsAndStopsProcessesOfItsOwn(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no process is stopped there")
	}
	s := testserver.Redis(t)
	r := checked(t, 0, "--run", "^(a take whose reply was lost leaves nothing|the (hold|share) of a process that was killed)", s.URL())
	assert.Equal(t, 3, r.Count(conformance.Kept), "%v", r.Results)
	wantForgotten(t, s)
}

// The server of others has connections for others, too.
func TestCheck_opensFewConnections(t *testing.T) {
	t.Parallel()
	run := "^(different names never collide|many processes exclude one another)"
	if testwait.Thorough() {
		run = "^a random history is that of one lock though processes"
	}
	s := testserver.Postgres(t, testserver.PostgresSettings("max_connections=36", "superuser_reserved_connections=0"))
	r := checked(t, 0, "--run", run, s.URL()+"&pool_max_conns=50")
	assert.NotZero(t, r.Count(conformance.Kept))
	assert.Equal(t, "at most 12 clients at once, each with 3 connections at most", r.Bounds)
	assert.NotContains(t, s.Log(), "too many clients")
}

func TestCheck_leavesServersAlone(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := checked(t, 0, "--run", "server (is silent|loses its data)|server's clock", s.URL())
	assert.NotEmpty(t, r.Results)
	for _, v := range r.Results {
		assert.Equal(t, conformance.Skipped, v.Outcome, v.Scenario)
	}
}

func TestCheck_ofEveryBackend(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "TestCheck_leavesNothing is the same with Redis")
	nodes := []string{testserver.Redis(t).Addr(), testserver.Redis(t).Addr(), testserver.Redis(t).Addr()}
	for _, url := range []string{
		"mem://x", "redigo://" + nodes[0], "redlock://" + strings.Join(nodes, ","),
		testserver.Etcd(t).URL(), testserver.ZooKeeper(t).URL(), testserver.Postgres(t).URL(), "kubernetes://?kubeconfig=" + testserver.Kube(t).Kubeconfig(testserver.KubeAdmin),
	} {
		run := quick
		if strings.HasPrefix(url, "zookeeper") {
			run += "|^a take whose reply was lost leaves nothing behind"
		}
		r := checked(t, 0, "--run", run, url)
		assert.NotZero(t, r.Count(conformance.Kept), url)
		// Limits that the adapter's documentation states are no discovery.
		for _, v := range r.Results {
			assert.Equal(t, strings.HasPrefix(v.Scenario, "a take"), v.Why != "", "%s: %s", url, v.Scenario)
		}
		noShares := strings.HasPrefix(url, "redlock") || strings.HasPrefix(url, "postgres") || strings.HasPrefix(url, "kubernetes")
		assert.Equal(t, noShares, r.Count(conformance.Skipped) > 0, "read-write locks are skipped where there are none: %s", url)
		assert.Empty(t, r.Left, url)
	}
}

func TestCheck_whereDeletingIsNotAllowed_saysWhatStays(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig("user app on >secret ~* &* +@all -del"))
	r := checked(t, 0, "--run", "^a held lock is not granted", "redis://app:secret@"+s.Addr())
	assert.Contains(t, r.Left, "could not be deleted")
	assert.NotContains(t, r.Left, "secret")
}

func TestCheck_text(t *testing.T) {
	t.Parallel()
	o := locked(t, "check", "--run", quick, "mem://x")
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "exclusive")
	assert.Regexp(t, `\d promises kept, 0 broken`, o.stdout)
	assert.Contains(t, o.stderr, "kept      a held lock is not granted to another process", "plain lines where there is no terminal")
}

// It tells what else the servers are set up to do with locks.
func TestCheck_warnsOfAServerThatEvictsLocks(t *testing.T) {
	t.Parallel()
	const evicts = "maxmemory-policy is allkeys-lru"
	s := testserver.Redis(t, testserver.RedisPersistent(), testserver.RedisConfig("maxmemory 100mb", "maxmemory-policy allkeys-lru"))
	one := []string{"check", "--run", "^the token is 0 without", s.URL()}
	for output, want := range map[string]string{"text": "warning   ", "json": `"warnings": [`, "junit": `<property name="warning"`} {
		o := locked(t, append(one, "--output", output)...)
		require.Zero(t, o.code, o.stderr)
		assert.Contains(t, o.stdout, want)
		assert.Contains(t, o.stdout, evicts)
	}
	assert.Contains(t, checked(t, 0, "--run", "^the token is 0 without", "redigo://"+s.Addr()).Warnings[0], evicts)
	strict := locked(t, append(one, "--strict")...)
	assert.Equal(t, outcome.Broken, strict.code)
	assert.Contains(t, strict.stderr, "locker: --strict: 1 warnings, 0 promises not kept in each trial\n")
	compared := locked(t, append([]string{"compare", "--rounds", "1", "--pairs", "2", "--duration", "10ms"}, one[1:]...)...)
	require.Zero(t, compared.code, compared.stderr)
	assert.Regexp(t, `- \*\*warning\*\*: .*`+evicts, compared.stdout)

	s.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	assert.Empty(t, checked(t, 0, one[1:]...).Warnings)
	s.Do("CONFIG", "SET", "appendonly", "no")
	assert.Contains(t, checked(t, 0, one[1:]...).Warnings[0], "appendonly is no")
}

// A server that becomes unreachable meanwhile breaks no promise.
func TestCheck_ofABackendThatGoesAway(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := begin(t, "check", "--output", "json", "--prefix", "mine", s.URL())
	patience.Until(t, "it has begun", func() bool { return len(s.Do("KEYS", "*").([]any)) > 2 }) // the mark is one
	s.Kill()
	require.Equal(t, outcome.Unreachable, p.wait(), "%s", p.stderr)
	var r check.Report
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &r))
	assert.Zero(t, r.Count(conformance.Broken))
	assert.Equal(t, 1, r.Count(conformance.Undecided))
}

func TestJUnit_isXMLWhateverWasSeen(t *testing.T) {
	t.Parallel()
	const seen = "\x00\x1b[2J \xff \ufffe ]]> <&"
	var results []check.Verdict
	for _, outcome := range []conformance.Outcome{conformance.Broken, conformance.Skipped, conformance.Undecided} {
		results = append(results, check.Verdict{Result: conformance.Result{Scenario: "s", Outcome: outcome, Seen: seen}})
	}
	var out strings.Builder
	require.NoError(t, writeJUnit(&out, &check.Report{Results: results}))
	var all struct {
		Failure string `xml:"testsuite>testcase>failure"`
	}
	require.NoError(t, xml.Unmarshal([]byte(out.String()), &all), out.String())
	assert.Equal(t, "\ufffd\ufffd[2J \ufffd \ufffd ]]> <&", all.Failure)
}

// inDoubt is what came of a scenario that saw something in two of five trials.
func inDoubt() check.Verdict {
	return check.Verdict{Result: conformance.Result{
		Scenario: "s", Promise: "P.", Guarantee: locker.Woken, Outcome: conformance.Kept,
		Trials: 5, Doubts: 2, Paused: 1, Seen: "B's Lock hangs",
	}}
}

// A promise that was not kept in each trial is kept, and the report says how often.
func TestReport_ofWhatWasNotKeptInEachTrial(t *testing.T) {
	t.Parallel()
	kept := check.Verdict{Result: conformance.Result{Scenario: "s2", Guarantee: locker.Woken, Outcome: conformance.Kept, Trials: 1}}
	known := check.Verdict{Result: conformance.Result{
		Scenario: "s3", Outcome: conformance.Known, Trials: 1, Seen: "two at once", Why: "by design",
	}}
	r := &check.Report{Results: []check.Verdict{kept, inDoubt(), known}}
	require.NoError(t, r.Verdict(false))
	for format, parts := range map[string][]string{
		"text": {
			"kept      s (0.0 s), in 3 of 5 trials; in 1 of the others the machine was\n          overloaded\n", "seen: B's Lock hangs",
			"2 promises kept (1 of them not in each trial), 0 broken", "held, 1 in doubt",
		},
		"json":  {`"trials": 5`, `"doubts": 2`, `"paused": 1`, `"doubtful": 1`, `"seen": "held"`},
		"junit": {`<system-out>`, "in 3 of 5 trials", "B's Lock hangs", "known deviation: by design"},
	} {
		var out strings.Builder
		require.NoError(t, writeReport(&out, r, format))
		for _, part := range parts {
			assert.Contains(t, out.String(), part, format)
		}
		assert.Equal(t, 1, strings.Count(out.String(), "hangs"), "%s: of what was kept each time there is nothing to say", format)
	}
}

func TestCheck_known(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "known")
	known := func(text string) []string {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return []string{"--run", "^(TryLock takes a free lock|the token is 0 without a hold)$", "--known", file, "mem://"}
	}
	r := checked(t, 0, known("# nothing is known\n\n")...)
	assert.Equal(t, 2, r.Count(conformance.Kept))
	r = checked(t, outcome.Broken, known("the token is 0 without a hold: it has none\n")...)
	assert.Equal(t, 1, r.Count(conformance.Stale), "it is kept")
	var junit strings.Builder
	require.NoError(t, writeJUnit(&junit, &r))
	assert.Contains(t, junit.String(), `failures="1"`)
	assert.Contains(t, junit.String(), "it has none")
	for says, text := range map[string]string{
		"line 1: no scenario is called": "the lock is good: it is not\n",
		"line 2: want the name":         "\nTryLock takes a free lock\n",
	} {
		o := locked(t, append([]string{"check"}, known(text)...)...)
		assert.Equal(t, outcome.Usage, o.code)
		assert.Contains(t, o.stderr, says)
	}
}

// A check that has no time left says what it did not do, and is no success.
func TestCheck_limit(t *testing.T) {
	t.Parallel()
	began := time.Now()
	o := locked(t, "check", "--limit", "2s", "--run", "a long TTL|TryLock takes", "mem://")
	assert.Equal(t, outcome.Unreachable, o.code, o.stderr)
	assert.Contains(t, o.stderr, "--limit")
	assert.Contains(t, o.stdout, "1 promises kept")
	assert.Contains(t, o.stdout, "ended early: 1 of 2 scenarios did not run")
	assert.Less(t, time.Since(began), time.Minute)
}

// A history that was kept is judged again, and drawn beside its file.
func TestCheck_replay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code int
		says string
	}{
		"two-holders":           {outcome.Broken, "broken: there were 7 operations"},
		"good-readers-together": {0, "kept: one lock can have had the history"},
	} {
		saved, err := os.ReadFile(filepath.Join("..", "..", "internal", "history", "testdata", name+".json"))
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "history.json")
		require.NoError(t, os.WriteFile(file, saved, 0o600))
		o := locked(t, "check", "--replay", file)
		require.Equal(t, c.code, o.code, o.stderr)
		assert.Contains(t, o.stdout, c.says)
		page, err := os.ReadFile(filepath.Join(filepath.Dir(file), "history.timeline.html"))
		require.NoError(t, err)
		assert.Contains(t, string(page), "client")
	}
	o := locked(t, "check", "--replay", filepath.Join(t.TempDir(), "none.json"))
	assert.Equal(t, outcome.Usage, o.code)
	assert.Contains(t, o.stderr, "none.json")
}
