package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/kills"
	"github.com/go-locker/locker/bench/internal/program"
	"github.com/go-locker/locker/bench/internal/redislocks"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/servertest"
	"github.com/go-locker/locker/bench/internal/wire"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestMain(m *testing.M) {
	kills.Serve(redislocks.Waiting) // as in main
	os.Exit(m.Run())
}

func TestRun_measuresEveryLibraryOnARealServer(t *testing.T) {
	testserver.Need(t, "redis-server")
	r, out, charts := servertest.Run[Results](t, run,
		"-waiters", "3", "-clients", "2", "-rounds", "1", "-duration", "400ms", "-warm-up", "100ms",
		"-idle", "500ms", "-idle-waiters", "2", "-handover-waiters", "2", "-drain", "3",
		"-kill-waiters", "4", "-kill-ttl", "4s")
	require.Len(t, r.Contended, len(redislocks.Waiting))
	require.Len(t, r.Handovers, len(redislocks.Waiting))
	require.Len(t, r.Drains, len(redislocks.Waiting))
	require.Len(t, r.Idle, len(redislocks.Waiting))
	for i, l := range redislocks.Waiting {
		c, h, idle := r.Contended[i], r.Handovers[i], r.Idle[i]
		assert.Equal(t, l.Name, c.Library)
		assert.Equal(t, 2, c.Clients, "%s: clients", l.Name)
		if l.Name == "locker" {
			assert.Positive(t, c.Acquisitions, "acquisitions")
		}
		assert.GreaterOrEqual(t, c.Load.Sent, int64(c.Acquisitions), "%s: a command each, at least", l.Name)
		assert.GreaterOrEqual(t, c.Load.Run, c.Load.Sent-10, "%s: the server runs what it is sent", l.Name)
		assert.Positive(t, c.Load.Microseconds, "%s: time at the server", l.Name)
		if l.Name != redislocks.LosesWakeUps {
			assert.Zero(t, c.Errors, "%s: %s", l.Name, c.Error)
			assert.Empty(t, r.Drains[i].Error, l.Name)
		}
		assert.Zero(t, c.Overlaps, "%s: overlaps", l.Name)
		if l.Name == "locker" { // another may take longer than this test lasts: rueidislock does, now and then
			assert.Positive(t, h.Samples, "hand-overs")
		}
		assert.Equal(t, h.Samples > 0, h.P50Us > 0, "%s: time of a hand-over", l.Name)
		assert.GreaterOrEqual(t, r.Drains[i].Seconds, 3*drainHold.Seconds(), "%s: time of three holds", l.Name)
		assert.GreaterOrEqual(t, r.Drains[i].Seconds, r.Drains[i].Held, "%s: time held", l.Name)
		assert.Positive(t, h.PingP50Us, "%s: time of a PING", l.Name)
		assert.Positive(t, idle.WarmUp.Sent, "%s: commands to connect and to lock", l.Name)
		assert.Zero(t, idle.Overlaps, "%s: overlaps while one holds", l.Name)
		assert.Contains(t, out, "\n| 3 | 2 | "+l.Name+" |")
	}
	assert.Equal(t, []string{"waiters-acquisitions.svg", "waiters-commands.svg"}, charts)
	require.Len(t, r.Kills, 2*len(redislocks.Waiting))
	for _, k := range r.Kills {
		if k.Library != redislocks.LosesWakeUps {
			assert.Empty(t, k.Error, "%s, %s", k.Library, k.Who)
		}
		if k.Library == "locker" && k.Who == kills.Holder {
			assert.Greater(t, k.Ms, k.TTLMs/3, "what was left of the TTL")
		}
	}
	assert.Equal(t, 5, strings.Count(out, "\n## "))
}

// A lock that excludes nobody has to show.
func TestMeasure_noticesTwoHolders(t *testing.T) {
	testserver.Need(t, "redis-server")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	on, err := servers.Redis(ctx, 1)
	require.NoError(t, err)
	defer on.Stop()
	none := func(context.Context) error { return nil }
	broken := contend.Library{Name: "broken", Open: func([]string, *wire.Tally, time.Duration) (*contend.Client, error) {
		return &contend.Client{
			Waiter: func(string) contend.LockFunc {
				return func(context.Context) (contend.UnlockFunc, error) { return none, nil }
			},
			Close: func() {},
		}, nil
	}}
	o := &options{
		waiters: program.Counts{32}, clients: program.Counts{2}, duration: 300 * time.Millisecond, idle: 100 * time.Millisecond,
		idleWaiters: 2, handoverWaiters: 2, drain: 16,
	}

	c, err := measureContended(ctx, on, broken, o.cells(0)[0])
	require.NoError(t, err)
	assert.Positive(t, c.Overlaps, "contended")
	h, err := measureHandover(ctx, on, broken, 0, o)
	require.NoError(t, err)
	assert.Positive(t, h.Overlaps, "hand-over")
	d, err := measureDrain(ctx, on, broken, 0, o)
	require.NoError(t, err)
	assert.Positive(t, d.Overlaps, "drain")
	i, err := measureIdle(ctx, on, broken, o)
	require.NoError(t, err)
	assert.Equal(t, 2, i.Overlaps, "idle")
}

func TestCells_haveNoMoreClientsThanWaiters(t *testing.T) {
	var o options
	require.NoError(t, program.Parse(&o, "waiters", redislocks.Waiting, []string{"-waiters", "2,32", "-clients", "1,8,64"}, io.Discard))
	var cells [][2]int
	for _, c := range o.cells(0) {
		cells = append(cells, [2]int{c.Waiters, c.Clients})
	}
	assert.Equal(t, [][2]int{{2, 1}, {2, 2}, {32, 1}, {32, 8}, {32, 32}}, cells)
}
