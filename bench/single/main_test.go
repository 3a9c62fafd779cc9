package main

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/internal/redislocks"
	"github.com/go-locker/locker/bench/internal/servertest"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestMain(m *testing.M) {
	logging.Disable() // as in main
	os.Exit(m.Run())
}

func measureBriefly(t *testing.T, args ...string) (Results, string) {
	t.Helper()
	testserver.Need(t, "redis-server")
	r, out, charts := servertest.Run[Results](t, run, append([]string{
		"-rounds", "1", "-blocks", "2", "-block", "10", "-long-rounds", "1", "-goroutines", "4,8", "-duration", "300ms",
		"-warm-up", "100ms", "-held", "2,200", "-held-for", "11s", "-held-before", "100ms",
	}, args...)...)
	if strings.Contains(strings.Join(args, " "), "apart") {
		assert.Len(t, charts, 1)
	}
	return r, out
}

func TestRun_measuresEveryLibraryOnARealServer(t *testing.T) {
	r, out := measureBriefly(t, "-only", "pairs,apart")
	require.Len(t, r.Pairs, len(redislocks.All))
	require.Len(t, r.Apart, 2*len(redislocks.All))
	for i, l := range redislocks.All {
		p, a := r.Pairs[i], r.Apart[i]
		assert.Equal(t, l.Name, p.Library)
		assert.Equal(t, 20, p.Samples, "%s: pairs", l.Name)
		assert.Positive(t, p.LockP50Us, "%s: time of Lock", l.Name)
		assert.Positive(t, p.UnlockP50Us, "%s: time of Unlock", l.Name)
		assert.GreaterOrEqual(t, p.Load.Sent, int64(2*p.LoadOf), "%s: commands", l.Name)
		assert.Positive(t, p.Load.Microseconds, "%s: time at the server", l.Name)
		assert.Positive(t, p.Load.Client.Allocations, "%s: allocations", l.Name)
		assert.Positive(t, a.Pairs, "%s: pairs of several", l.Name)
		if l.Name != redislocks.LosesWakeUps {
			assert.Zero(t, a.Errors, "%s: %s", l.Name, a.Error)
		}
	}
	assert.Contains(t, out, "\n| 8 | bare-autopipeline |", "the table")
	assert.Equal(t, 2, strings.Count(out, "\n## "))
}

// Each lock is renewed while it is looked at.
func TestRun_measuresLocksThatAreHeld(t *testing.T) {
	r, out := measureBriefly(t, "-only", "held", "-libraries", "locker,bare")
	require.Len(t, r.Held, 2, "the bare scripts renew nothing")
	for _, h := range r.Held {
		assert.Equal(t, "locker", h.Library)
		assert.Positive(t, h.Load.Sent, "renewals")
		assert.LessOrEqual(t, h.Load.Sent, int64(2*h.Locks+10), "each lock at most twice, in the time of one renewal or a little more")
		assert.Greater(t, h.Oldest, 0.1)
		assert.Less(t, h.Oldest, 0.9)
		assert.Zero(t, h.Lost)
	}
	assert.Contains(t, out, "\n| 200 | locker |")
}
