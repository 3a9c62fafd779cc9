package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// quick is a selection of scenarios that take little time.
const quick = "^(a held lock is not granted|TryLock of|the token is 0 without|tokens rise from process|readers share)"

// checked runs a check that prints JSON.
func checked(t *testing.T, wantCode int, args ...string) checkReport {
	t.Helper()
	p := begin(t, append([]string{"check", "--output", "json"}, args...)...)
	require.Equal(t, wantCode, p.waitFor(3*time.Minute), "%s", p.stderr)
	var r checkReport
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &r))
	return r
}

func TestCheck_ofARealServer_saysEachPromiseAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := checked(t, 0, "--run", quick, "redis://:@"+s.Addr()+"/0?prefix=app&ttl=1h&require=fencing")
	assert.Equal(t, "redis://"+s.Addr()+"/0", r.Backend)
	assert.Contains(t, r.Prefix, "app-check-")
	assert.NotZero(t, r.count(conformance.Kept))
	assert.Zero(t, r.count(conformance.Broken))
	assert.Empty(t, r.Left)
	wantForgotten(t, s)
}

// wantForgotten fails if a key is left that does not expire.
func wantForgotten(t *testing.T, s *testserver.RedisServer) {
	t.Helper()
	for _, key := range s.Do("KEYS", "*").([]any) {
		assert.NotEqual(t, int64(-1), s.Do("PTTL", key.(string)), "%s stays for good", key)
	}
}

func TestCheck_ofACluster_leavesNothingOfAnySlot(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "TestCheck_ofARealServer_saysEachPromiseAndLeavesNothing is the same with one server")
	c := testserver.Cluster(t)
	r := checked(t, 0, "--run", quick, "redis://"+strings.Join(c.Addrs(), ",")+"?cluster=true")
	assert.NotZero(t, r.count(conformance.Kept))
	assert.Empty(t, r.Left)
	for _, addr := range c.Addrs() {
		rdb := goredis.NewClient(&goredis.Options{Addr: addr})
		keys, err := rdb.Keys(t.Context(), "*%mark*").Result()
		require.NoError(t, err)
		assert.Empty(t, keys)
		require.NoError(t, rdb.Close())
	}
}

// Names that others may use, too, are theirs.
func TestCheck_underAPrefixOfOthers_leavesTheirLocksAlone(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	const prefix = "?prefix=theirs&ttl=1h"
	var held []*locker.Mutex
	for _, name := range []string{"probe", "a", "0", "null", ".", "/"} {
		c, err := locker.Open(t.Context(), s.URL()+prefix)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		held = append(held, c.Mutex(name))
		require.NoError(t, held[len(held)-1].Lock(deadline(t)))
	}
	r := checked(t, 0, "--prefix", "theirs", "--run", "^any name of UTF-8|^Name is the name", s.URL())
	assert.Equal(t, 2, r.count(conformance.Kept), "%v", r.Results)
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
	assert.Equal(t, 3, r.count(conformance.Kept), "%v", r.Results)
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
	assert.NotZero(t, r.count(conformance.Kept))
	assert.Equal(t, "at most 12 clients at once, each with 3 connections at most", r.Bounds)
	assert.NotContains(t, s.Log(), "too many clients")
	o := locked(t, "check", "--clients", "3", s.URL())
	assert.Equal(t, exitUsage, o.code)
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
	testwait.OnlyNightly(t, "TestCheck_ofARealServer_saysEachPromiseAndLeavesNothing is the same with Redis")
	nodes := []string{testserver.Redis(t).Addr(), testserver.Redis(t).Addr(), testserver.Redis(t).Addr()}
	for _, url := range []string{
		"mem://x", "redigo://" + nodes[0], "redlock://" + strings.Join(nodes, ","),
		testserver.Etcd(t).URL(), testserver.ZooKeeper(t).URL(), testserver.Postgres(t).URL(), "kubernetes://?kubeconfig=" + testserver.Kube(t).Kubeconfig(testserver.KubeAdmin),
	} {
		r := checked(t, 0, "--run", quick, url)
		assert.NotZero(t, r.count(conformance.Kept), url)
		noShares := strings.HasPrefix(url, "redlock") || strings.HasPrefix(url, "postgres") || strings.HasPrefix(url, "kubernetes")
		assert.Equal(t, noShares, r.count(conformance.Skipped) > 0, "read-write locks are skipped where there are none: %s", url)
		assert.Empty(t, r.Left, url)
	}
}

// What the adapter's documentation says of itself is no discovery.
func TestCheck_ofWhatIsKnown(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "ZooKeeper takes long, and deviations are tested where they are used, in package conformance")
	s := testserver.ZooKeeper(t)
	r := checked(t, 0, "--ttl", "4s", "--run", "^a take whose reply was lost leaves nothing behind", s.URL())
	require.Len(t, r.Results, 1)
	assert.NotEmpty(t, r.Results[0].Why)
	assert.Contains(t, r.Results[0].line(), "known deviation")
}

// A server that grants no long session breaks no promise.
func TestCheck_ofAZooKeeperOfShortSessions(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "TestOddButCorrect_ofShortTTLs is the same with a lock in memory")
	s := testserver.ZooKeeper(t, testserver.ZooKeeperConfig("maxSessionTimeout=10000"))
	r := checked(t, 0, "--ttl", "4s", "--run", "another process|that was killed|^a hold expires|^a cancelled wait", s.URL())
	assert.NotZero(t, r.count(conformance.Skipped))
	assert.Zero(t, r.count(conformance.Broken)+r.count(conformance.Undecided))
	assert.Contains(t, r.skipped()[0], "needs a TTL of")
}

func TestCheck_whereDeletingIsNotAllowed_saysWhatStays(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig("user app on >secret ~* &* +@all -del"))
	r := checked(t, 0, "--run", "^a held lock is not granted", "redis://app:secret@"+s.Addr())
	assert.Contains(t, r.Left, "could not be deleted")
	assert.NotContains(t, r.Left, "secret")
}

func TestCheck_textAndJUnit(t *testing.T) {
	t.Parallel()
	o := locked(t, "check", "--run", quick, "mem://x")
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "exclusive")
	assert.Regexp(t, `\d promises kept, 0 broken`, o.stdout)
	assert.Contains(t, o.stderr, "kept      a held lock is not granted to another process", "plain lines where there is no terminal")

	o = locked(t, "check", "--run", quick, "--output", "junit", "mem://x")
	require.Zero(t, o.code, o.stderr)
	var suites struct {
		Suites []struct {
			Name  string `xml:"name,attr"`
			Tests int    `xml:"tests,attr"`
			Cases []struct {
				Name string `xml:"name,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	require.NoError(t, xml.Unmarshal([]byte(o.stdout), &suites))
	require.Len(t, suites.Suites, 1)
	assert.Len(t, suites.Suites[0].Cases, suites.Suites[0].Tests)
	assert.NotEmpty(t, suites.Suites[0].Cases)
}

// It tells what else the servers are set up to do with locks.
func TestCheck_warnsOfAServerThatEvictsLocks(t *testing.T) {
	t.Parallel()
	const evicts = "maxmemory-policy is allkeys-lru"
	s := testserver.Redis(t, testserver.RedisPersistent(), testserver.RedisArgs("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
	one := []string{"check", "--run", "^the token is 0 without", s.URL()}
	for output, want := range map[string]string{"text": "warning   ", "json": `"warnings": [`, "junit": `<property name="warning"`} {
		p := begin(t, append(one, "--output", output)...)
		require.Equal(t, 0, p.waitFor(time.Minute), "%s", p.stderr)
		assert.Contains(t, p.stdout.String(), want)
		assert.Contains(t, p.stdout.String(), evicts)
	}
	assert.Contains(t, checked(t, 0, "--run", "^the token is 0 without", "redigo://"+s.Addr()).Warnings[0], evicts)
	strict := begin(t, append(one, "--strict")...)
	assert.Equal(t, exitBroken, strict.waitFor(time.Minute))
	assert.Contains(t, strict.stderr.String(), "locker: --strict: 1 warnings, 0 promises not kept in each trial\n")
	compared := begin(t, append([]string{"compare", "--rounds", "1", "--pairs", "2", "--duration", "10ms"}, one[1:]...)...)
	require.Equal(t, 0, compared.waitFor(time.Minute), "%s", compared.stderr)
	assert.Regexp(t, `- \*\*warning\*\*: .*`+evicts, compared.stdout.String())

	s.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	assert.Empty(t, checked(t, 0, one[1:]...).Warnings)
	s.Do("CONFIG", "SET", "appendonly", "no")
	assert.Contains(t, checked(t, 0, one[1:]...).Warnings[0], "appendonly is no")
}

func TestCheck_ofABackendThatIsAway(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Kill()
	o := locked(t, "check", s.URL())
	assert.Equal(t, exitUnreachable, o.code)
	assert.NotEmpty(t, o.stderr)
}

// A server that becomes unreachable meanwhile breaks no promise.
func TestCheck_ofABackendThatGoesAway(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	dir := t.TempDir()
	p := begin(t, "check", "--output", "json", "--prefix", "mine", s.URL())
	patience.Until(t, "it has begun", func() bool { return len(s.Do("KEYS", "*").([]any)) > 2 }) // the mark is one
	s.Kill()
	require.Equal(t, exitUnreachable, p.waitFor(3*time.Minute), "%s", p.stderr)
	var r checkReport
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &r), dir)
	assert.Zero(t, r.count(conformance.Broken))
	assert.Equal(t, 1, r.count(conformance.Undecided))
}

func TestCheck_interrupted_leavesNothingLocked(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no process is interrupted there")
	}
	s := testserver.Redis(t)
	p := begin(t, "check", "--ttl", "10m", s.URL())
	patience.Until(t, "it has begun", func() bool { return len(s.Do("KEYS", "*").([]any)) > 2 }) // the mark is one
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	assert.Equal(t, 130, p.waitFor(2*time.Minute), "%s", p.stderr)
	assert.Regexp(t, `ended early: \d+ of \d+ scenarios did not run`, p.stdout.String())
	wantForgotten(t, s)
}

func TestCheck_usage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "one URL"},
		{[]string{"mem://x", "mem://y"}, "one URL"},
		{[]string{"--run", "(", "mem://x"}, "--run"},
		{[]string{"--run", "no such scenario", "mem://x"}, "no scenario"},
		{[]string{"--output", "yaml", "mem://x"}, "must be one of"},
		{[]string{"--ttl", "1ms", "mem://x"}, "at least 5ms"},
		{[]string{"--ttl", "2500ms", "etcd://127.0.0.1:1"}, "whole"},
	} {
		o := locked(t, append([]string{"check"}, c.args...)...)
		assert.Equal(t, exitUsage, o.code, "%q: %s", c.args, o.stderr)
		assert.Contains(t, o.stderr, c.says, "%q", c.args)
	}
}

// forgetful grants the lock to everyone.
type forgetful struct{ locker.Locker }

func (forgetful) Lock(context.Context) error   { return nil }
func (forgetful) Unlock(context.Context) error { return nil }
func (forgetful) Extend(context.Context) error { return nil }
func (forgetful) FencingToken() uint64         { return 1 }

func examinerOf(l func(conformance.TB) locker.Locker) *examiner {
	return &examiner{harness: conformance.Harness{
		TTL: 300 * time.Millisecond,
		New: func(t conformance.TB, _ string, _ time.Duration) locker.Locker { return l(t) },
	}}
}

func TestVerdict_ofALockThatIsNone(t *testing.T) {
	t.Parallel()
	e := examinerOf(func(conformance.TB) locker.Locker { return forgetful{} })
	v := e.examine(t.Context(), conformance.Scenarios()[0])
	assert.Equal(t, conformance.Broken, v.Outcome)
	assert.Contains(t, v.line(), "seen:")
	r := &checkReport{Results: []verdict{v}}
	assert.Equal(t, exitBroken, exitCode(r.verdict()))
	assert.Equal(t, "broken", r.guarantees()[0].Seen)
	var out strings.Builder
	require.NoError(t, r.writeJUnit(&out))
	assert.Contains(t, out.String(), "<failure")
}

func TestVerdict_ofALockThatCannotBeMade(t *testing.T) {
	t.Parallel()
	cleaned := false
	e := examinerOf(func(t conformance.TB) locker.Locker {
		t.Cleanup(func() { cleaned = true })
		t.Fatalf("no route to %s", "host")
		return nil
	})
	v := e.examine(t.Context(), conformance.Scenarios()[0])
	assert.Equal(t, conformance.Undecided, v.Outcome)
	assert.Equal(t, "no route to host", v.Seen)
	assert.True(t, cleaned)
	assert.Equal(t, exitUnreachable, exitCode((&checkReport{Results: []verdict{v}}).verdict()))
}

func TestJUnit_isXMLWhateverWasSeen(t *testing.T) {
	t.Parallel()
	const seen = "\x00\x1b[2J \xff \ufffe ]]> <&"
	var results []verdict
	for _, outcome := range []conformance.Outcome{conformance.Broken, conformance.Skipped, conformance.Undecided} {
		results = append(results, verdict{conformance.Result{Scenario: "s", Outcome: outcome, Seen: seen}})
	}
	var out strings.Builder
	require.NoError(t, (&checkReport{Results: results}).writeJUnit(&out))
	var all struct {
		Failure string `xml:"testsuite>testcase>failure"`
	}
	require.NoError(t, xml.Unmarshal([]byte(out.String()), &all), out.String())
	assert.Equal(t, "\ufffd\ufffd[2J \ufffd \ufffd ]]> <&", all.Failure)
}

func TestRedisServers_ofAParameterWithASemicolon(t *testing.T) {
	t.Parallel()
	all, err := parse("redis://h?client_name=a;b").redisServers(t.Context())
	require.NoError(t, err)
	for _, rdb := range all {
		require.NoError(t, rdb.Close())
	}
}

// inDoubt is what came of a scenario that saw something in two of five trials.
func inDoubt() verdict {
	return verdict{conformance.Result{
		Scenario: "s", Promise: "P.", Guarantee: locker.Woken, Outcome: conformance.Kept,
		Trials: 5, Doubts: 2, Paused: 1, Seen: "B's Lock hangs",
	}}
}

// A promise that was not kept in each trial is kept, and the report says how often.
func TestReport_ofWhatWasNotKeptInEachTrial(t *testing.T) {
	t.Parallel()
	kept := verdict{conformance.Result{Scenario: "s2", Guarantee: locker.Woken, Outcome: conformance.Kept, Trials: 1}}
	known := verdict{conformance.Result{Scenario: "s3", Outcome: conformance.Known, Trials: 1, Seen: "two at once", Why: "by design"}}
	r := &checkReport{Results: []verdict{kept, inDoubt(), known}}
	require.NoError(t, r.verdict())
	for format, parts := range map[string][]string{
		"text": {
			"kept      s (0.0 s), in 3 of 5 trials; in 1 of the others the machine was\n          overloaded\n", "seen: B's Lock hangs",
			"2 promises kept (1 of them not in each trial), 0 broken", "held, 1 in doubt",
		},
		"json":  {`"trials": 5`, `"doubts": 2`, `"paused": 1`, `"doubtful": 1`, `"seen": "held"`},
		"junit": {`<system-out>`, "in 3 of 5 trials", "B's Lock hangs", "known deviation: by design"},
	} {
		var out strings.Builder
		require.NoError(t, r.write(&out, format))
		for _, part := range parts {
			assert.Contains(t, out.String(), part, format)
		}
		assert.Equal(t, 1, strings.Count(out.String(), "hangs"), "%s: of what was kept each time there is nothing to say", format)
	}
}
