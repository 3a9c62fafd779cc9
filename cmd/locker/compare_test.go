package main

import (
	"encoding/json"
	"fmt"
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

func briefly(args ...string) []string {
	return append([]string{"compare", "--run", quick, "--rounds", "1", "--pairs", "5", "--duration", "50ms", "--goroutines", "3"}, args...)
}

func TestCompare_asMarkdown(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	o := locked(t, briefly(s.URL(), "mem://x")...)
	require.Zero(t, o.code, o.stderr)
	for _, says := range []string{"# Locks compared", "| exclusive | held", "| Backend |", "| a held lock is not granted to another process | kept | kept |"} {
		assert.Contains(t, o.stdout, says)
	}
	wantForgotten(t, s)
}

func TestCompare_saysWhatWasNotKept(t *testing.T) {
	t.Parallel()
	broken := check.Verdict{Result: conformance.Result{
		Scenario: "s2", Promise: "P.", Guarantee: locker.Exclusive, Outcome: conformance.Broken, Seen: "two\nat once",
	}}
	c := &comparison{Checks: []*check.Report{{Backend: "mem://x", Results: []check.Verdict{inDoubt()}}}, Bench: &benchReport{
		Results: []benchResult{{Backend: "mem://x", Pair: latency{1, 1, 1}, HandOver: latency{1, 1, 1}, PairsPerSecond: []float64{1}}},
	}}
	doubtful := conformance.Scenarios()[0].Name
	c.Checks[0].Results[0].Scenario = doubtful
	require.NoError(t, c.verdict(false))
	c.Checks[0].Results = append(c.Checks[0].Results, broken)
	assert.Equal(t, outcome.Broken, exitCode(c.verdict(false)))
	var markdown strings.Builder
	require.NoError(t, c.write(&markdown, "markdown"))
	for _, part := range []string{"| " + doubtful + " | kept, in 3 of 5 trials", "1 of them not in each trial", "1 in doubt", "**kept, in 3 of 5 trials", "**broken**: s2", "| exclusive | broken", "  two\n  at once"} {
		assert.Contains(t, markdown.String(), part)
	}
}

// What was found out until then is worth its time.
func TestCompare_withAServerThatGoesAway_keepsTheRest(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := begin(t, briefly("--output", "json", s.URL(), "mem://x", "mem://x")...)
	patience.Until(t, "its check has begun", func() bool { return strings.Contains(fmt.Sprint(s.Do("KEYS", "*")), "-check-") })
	s.Kill()
	require.Equal(t, outcome.Unreachable, p.wait(), p.stderr)
	var c comparison
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &c), p.stderr)
	require.NotEmpty(t, c.Checks)
	last := c.Checks[len(c.Checks)-1]
	assert.Equal(t, "mem://x (2)", last.Backend)
	assert.Len(t, c.Bench.Results, 3)
	assert.NotZero(t, last.Count(conformance.Kept))
	assert.Contains(t, p.stderr.String(), s.URL())
}

// brief is a bench that takes no time.
func brief(args ...string) []string {
	return append([]string{"bench", "--rounds", "2", "--pairs", "5", "--duration", "50ms", "--goroutines", "3"}, args...)
}

func TestBench_measuresServersSideBySideAndLeavesNothing(t *testing.T) {
	t.Parallel()
	redis := testserver.Redis(t)
	urls := []string{redis.URL() + "?prefix=app", redis.URL(), "mem://x"}
	if testwait.Thorough() {
		urls = append(urls, testserver.Etcd(t).URL(), testserver.ZooKeeper(t).URL())
	}
	o := locked(t, brief(append([]string{"--output", "json"}, urls...)...)...)
	require.Zero(t, o.code, o.stderr)
	var r benchReport
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &r))
	require.Len(t, r.Results, len(urls))
	assert.Equal(t, redis.URL(), r.Results[0].Backend)
	assert.Equal(t, redis.URL()+" (2)", r.Results[1].Backend)
	for _, b := range r.Results {
		assert.Equal(t, 10, b.Pair.Samples, b.Backend)
		assert.Positive(t, b.Pair.P50, b.Backend)
		assert.GreaterOrEqual(t, b.Pair.P99, b.Pair.P50, b.Backend)
		assert.Positive(t, b.HandOver.Samples, b.Backend)
		assert.Positive(t, b.HandOver.P50, b.Backend)
		assert.Len(t, b.PairsPerSecond, 2, b.Backend)
		assert.Positive(t, b.throughput(), b.Backend)
	}
	wantForgotten(t, redis)
}

func TestBench_table(t *testing.T) {
	t.Parallel()
	o := lockedWith(t, []string{"LOCKER_URL=mem://here"}, brief("-", "mem://there")...)
	require.Zero(t, o.code, o.stderr)
	for _, says := range []string{"mem://here", "mem://there", "Pair p50", "Hand-over p50", "Pairs/s", "3 goroutines"} {
		assert.Contains(t, o.stdout, says)
	}
}

func TestLatency_isAValueThatWasMeasured(t *testing.T) {
	t.Parallel()
	var all []time.Duration
	for i := range 200 {
		all = append(all, time.Duration(200-i)*time.Microsecond)
	}
	assert.Equal(t, latency{200, 100, 198}, latencyOf(all))
	assert.Equal(t, latency{1, 200, 200}, latencyOf(all[:1]))
	assert.Equal(t, "–", latencyOf(nil).p50())
	assert.Equal(t, "1.23 ms", latency{Samples: 1, P50: 1234}.p50())
}
