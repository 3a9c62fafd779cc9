package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime"
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

func TestBench_ofAServerThatIsAway_namesIt(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Kill()
	o := locked(t, brief("mem://x", s.URL())...)
	assert.Equal(t, exitUnreachable, o.code)
	assert.Contains(t, o.stderr, s.URL())
	assert.Empty(t, o.stdout)
}

func TestBench_interrupted_leavesNothingLocked(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no process is interrupted there")
	}
	s := testserver.Redis(t)
	p := begin(t, "bench", "--duration", "1h", s.URL())
	patience.Until(t, "it has begun", func() bool { return len(s.Do("KEYS", "*").([]any)) > 3 }) // the mark is one
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	assert.Equal(t, 130, p.wait(), "%s", p.stderr)
	wantForgotten(t, s)
}

func TestBench_usage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"--rounds", "0", "mem://x"}, {"--duration", "2h", "mem://x"}, {"--output", "junit", "mem://x"}, {"gopher://x"},
	} {
		o := locked(t, append([]string{"bench"}, args...)...)
		assert.Equal(t, exitUsage, o.code, "%q: %s", args, o.stderr)
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

// One that waits for another that has failed would wait for ever.
func TestTogether_endsTheOthersWhenOneFails(t *testing.T) {
	t.Parallel()
	failure := errors.New("no more")
	assert.Equal(t, failure, together(t.Context(), 2, func(ctx context.Context, i int) error {
		if i == 0 {
			return failure
		}
		<-ctx.Done()
		return ctx.Err()
	}))
}

func TestBench_withRightsOnOnePrefix(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "etcd and its users take long to start, and only the prefix is another here")
	s := testserver.Etcd(t, testserver.EtcdAuth("app", "secret"))
	o := lockedWith(t, []string{"LOCKER_URL=etcd://app:secret@" + s.Addr()}, brief("--prefix", "locker", "-")...)
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stderr, "bench: 6/6 throughput", "plain lines where there is no terminal")
}
