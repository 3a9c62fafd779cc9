package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

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
