package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/redisserver"
	"github.com/go-locker/locker/bench/internal/servertest"
	"github.com/go-locker/locker/bench/internal/wire"
)

func TestRun_measuresEveryLibraryOnARealServer(t *testing.T) {
	servertest.Need(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "raw.json")
	var out bytes.Buffer
	require.NoError(t, run(ctx, []string{
		"-waiters", "3", "-clients", "2", "-rounds", "1", "-duration", "400ms", "-warm-up", "100ms",
		"-idle", "500ms", "-idle-waiters", "2", "-handover-waiters", "2", "-quiet", "-json", file,
	}, &out, io.Discard))

	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var r Results
	require.NoError(t, json.Unmarshal(raw, &r))
	require.Len(t, r.Contended, len(libraries))
	require.Len(t, r.Handovers, len(libraries))
	require.Len(t, r.Idle, len(libraries))
	for i, l := range libraries {
		c, h, idle := r.Contended[i], r.Handovers[i], r.Idle[i]
		assert.Equal(t, l.Name, c.Library)
		assert.Equal(t, 2, c.Clients, "%s: clients", l.Name)
		if l.Name == "locker" {
			assert.Positive(t, c.Acquisitions, "acquisitions")
		}
		assert.GreaterOrEqual(t, c.Load.Sent, int64(c.Acquisitions), "%s: a command each, at least", l.Name)
		assert.GreaterOrEqual(t, c.Load.Run, c.Load.Sent-10, "%s: the server runs what it is sent", l.Name)
		assert.Positive(t, c.Load.Microseconds, "%s: time at the server", l.Name)
		assert.Zero(t, c.Errors, "%s: %s", l.Name, c.Error)
		assert.Zero(t, c.Overlaps, "%s: overlaps", l.Name)
		if l.Name == "locker" { // another may take longer than this test lasts: rueidislock does, now and then
			assert.Positive(t, h.Samples, "hand-overs")
		}
		assert.Equal(t, h.Samples > 0, h.P50Us > 0, "%s: time of a hand-over", l.Name)
		assert.Positive(t, h.PingP50Us, "%s: time of a PING", l.Name)
		assert.Positive(t, idle.WarmUp.Sent, "%s: commands to connect and to lock", l.Name)
		assert.Zero(t, idle.Overlaps, "%s: overlaps while one holds", l.Name)
		assert.Contains(t, out.String(), "\n| 3 | "+l.Name+" |")
	}
	assert.Equal(t, 3, strings.Count(out.String(), "\n## "))
}

// A lock that excludes nobody has to show.
func TestMeasure_noticesTwoHolders(t *testing.T) {
	servertest.Need(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	servers, err := redisserver.Start(ctx, 1)
	require.NoError(t, err)
	defer servers.Stop()
	none := func(context.Context) error { return nil }
	broken := contend.Library{Name: "broken", Open: func([]string, *wire.Tally) (*contend.Client, error) {
		return &contend.Client{
			Waiter: func(string) contend.LockFunc {
				return func(context.Context) (contend.UnlockFunc, error) { return none, nil }
			},
			Close: func() {},
		}, nil
	}}
	o := options{
		clients: 2, duration: 300 * time.Millisecond, idle: 100 * time.Millisecond,
		idleWaiters: 2, handoverWaiters: 2,
	}

	c, err := measureContended(ctx, servers, broken, 0, 32, o)
	require.NoError(t, err)
	assert.Positive(t, c.Overlaps, "contended")
	h, err := measureHandover(ctx, servers, broken, 0, o)
	require.NoError(t, err)
	assert.Positive(t, h.Overlaps, "hand-over")
	i, err := measureIdle(ctx, servers, broken, o)
	require.NoError(t, err)
	assert.Equal(t, 2, i.Overlaps, "idle")
}

func TestParse_refusesWhatItCannotMeasure(t *testing.T) {
	for _, args := range [][]string{
		{"-libraries", "locker,nobody"},
		{"-waiters", "2,x"},
		{"-waiters", "0"},
		{"-rounds", "0"},
		{"-duration", "0"},
		{"-idle", "30s"},
		{"extra"},
	} {
		_, err := parse(args, io.Discard)
		require.Error(t, err, "%v", args)
	}
	o, err := parse([]string{"-waiters", ""}, io.Discard)
	require.NoError(t, err)
	assert.Empty(t, o.waiters)
	assert.Len(t, o.Libraries, len(libraries))
}
