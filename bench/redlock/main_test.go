//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/servertest"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestMain(m *testing.M) {
	logging.Disable() // as in main
	os.Exit(m.Run())
}

// measureBriefly returns the raw figures, and what was printed.
func measureBriefly(t *testing.T, args ...string) (Results, string) {
	t.Helper()
	testserver.Need(t, "redis-server")
	r, out, charts := servertest.Run[Results](t, run, append([]string{
		"-nodes", "3", "-rounds", "1", "-blocks", "2", "-block", "10", "-long-rounds", "1", "-healthy", "10",
		"-unreachable", "100ms", "-contenders", "3", "-clients", "2", "-goroutines", "4", "-duration", "400ms",
		"-warm-up", "100ms",
	}, args...)...)
	if strings.Contains(strings.Join(args, " "), "apart") {
		assert.Len(t, charts, 3)
	}
	assert.Equal(t, 3, r.Nodes)
	return r, out
}

func TestRun_measuresEveryLibraryOnRealServers(t *testing.T) {
	r, out := measureBriefly(t, "-only", "pairs,contended,apart")
	require.Len(t, r.Pairs, len(libraries))
	for i, l := range libraries {
		p := r.Pairs[i]
		assert.Equal(t, l.Name, p.Library)
		assert.Equal(t, 20, p.Samples, "%s: pairs", l.Name)
		assert.Positive(t, p.LockP50Us, "%s: time of Lock", l.Name)
		assert.Positive(t, p.UnlockP50Us, "%s: time of Unlock", l.Name)
		assert.GreaterOrEqual(t, p.PairP50Us, max(p.LockP50Us, p.UnlockP50Us), "%s: both together", l.Name)
		assert.Greater(t, p.Load.Sent, int64(4*p.LoadOf), "%s: two commands each to three nodes, or nearly", l.Name)
		assert.Positive(t, p.Load.Microseconds, "%s: time at the servers", l.Name)
	}
	require.Len(t, r.Contended, len(libraries)-2, "all but what is no lock, and what is one twice")
	for _, c := range r.Contended {
		assert.Equal(t, 2, c.Clients, "%s: clients", c.Library)
		assert.Positive(t, c.Acquisitions, "%s: acquisitions", c.Library)
		assert.GreaterOrEqual(t, c.Load.Sent, int64(2*c.Acquisitions), "%s: a command each to a majority, at least", c.Library)
		assert.Zero(t, c.Errors, "%s: %s", c.Library, c.Error)
		assert.Zero(t, c.Overlaps, "%s: overlaps", c.Library)
		assert.Contains(t, out, "\n| 3 | 2 | "+c.Library+" |")
	}
	require.Len(t, r.Apart, len(libraries)-1)
	for _, a := range r.Apart {
		assert.Positive(t, a.Pairs, "%s: pairs", a.Library)
		assert.Zero(t, a.Errors, "%s: %s", a.Library, a.Error)
		assert.Greater(t, a.Load.Sent, 3*a.Pairs, "%s: commands", a.Library)
	}
	assert.Equal(t, 3, strings.Count(out, "\n## "))
}

func TestRun_measuresWithAMinorityAway(t *testing.T) {
	quick := "locker,locker-redigo,redsync-failfast,bare" // those that do not wait for the minority
	r, out := measureBriefly(t, "-only", "minority", "-libraries", quick)
	require.Len(t, r.Minorities, 8)
	for _, m := range r.Minorities {
		assert.Equal(t, 1, m.Nodes)
		assert.Equal(t, 10, m.Healthy.Samples, "%s, %s: pairs before", m.Library, m.Fault)
		assert.Positive(t, m.Unreachable.Samples, "%s, %s: pairs while unreachable", m.Library, m.Fault)
		assert.Zero(t, m.Errors, "%s, %s: %s", m.Library, m.Fault, m.Error)
		assert.Contains(t, out, fmt.Sprintf("\n| %s | %s |", m.Library, m.Fault))
	}
	assert.Equal(t, 1, strings.Count(out, "\n## "))
}

// redsync waits ten seconds for stopped nodes, and does not heed its context meanwhile.
func TestRun_endsWhenInterrupted(t *testing.T) {
	testserver.Need(t, "redis-server")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	time.AfterFunc(time.Second, interrupt)
	start := time.Now()
	err := run(ctx, []string{
		"-libraries", "redsync", "-only", "minority", "-block", "1", "-healthy", "1", "-unreachable", "1m", "-quiet",
	}, io.Discard, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
	assert.Less(t, time.Since(start), 5*time.Second)
}

func TestMinorityOf_isAnotherInEachRound(t *testing.T) {
	var all []*servers.RedisServer
	for range 5 {
		all = append(all, &servers.RedisServer{Addr: string(rune(97 + len(all)))})
	}
	assert.Equal(t, []*servers.RedisServer{all[0], all[1]}, minorityOf(all, 2, 0))
	assert.Equal(t, []*servers.RedisServer{all[4], all[0]}, minorityOf(all, 2, 4))
}
