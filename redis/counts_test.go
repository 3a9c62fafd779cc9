package redis_test

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// roundTrips counts what a go-redis client sends: each command or pipeline is one round trip.
type roundTrips struct{ commands, pipelines, pipelined atomic.Int64 }

func (c *roundTrips) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (c *roundTrips) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if isScript(cmd) {
			c.commands.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *roundTrips) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if isScript(cmds[0]) {
			c.pipelines.Add(1)
			c.pipelined.Add(int64(len(cmds)))
		}
		return next(ctx, cmds)
	}
}

// isScript leaves out what go-redis sends to set up a connection.
func isScript(cmd goredis.Cmder) bool { return cmd.Name() == "evalsha" || cmd.Name() == "eval" }

func TestCounts_eachOperationIsOneScriptInOneRoundTrip(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	ctx := t.Context()
	admin := connect(t, s.Addr())
	var sent roundTrips
	rdb := connect(t, s.Addr())
	rdb.AddHook(&sent)
	c := clientOf(t, rdb, locker.WithoutRenewal())
	m, other := c.Mutex("x"), c.Mutex("x")
	loadScripts(t, admin)
	_, err := clientOf(t, admin).Inspect(ctx, "x") // loads its script
	require.NoError(t, err)

	require.NoError(t, rdb.Ping(ctx).Err(), "sets up a connection")
	inScripts := []string{"time", "hmget", "hget", "hset", "hdel", "pttl", "pexpire", "zcard", "zrange", "info", "config|resetstat", "config"}
	for _, step := range []struct {
		name string
		do   func() error
		want error
	}{
		{"the first Lock", func() error { return m.Lock(ctx) }, nil}, // and one for the server's clock
		{"Unlock of that", func() error { return m.Unlock(ctx) }, nil},
		{"Lock", func() error { return m.Lock(ctx) }, nil},
		{"TryLock of a held lock", func() error { return other.TryLock(ctx) }, locker.ErrHeld},
		{"Extend", func() error { return m.Extend(ctx) }, nil},
		{"Inspect", func() error { _, err := c.Inspect(ctx, "x"); return err }, nil},
		{"FencingToken", func() error { _ = m.FencingToken(); return nil }, nil},
		{"Unlock", func() error { return m.Unlock(ctx) }, nil},
		{"TryLock of a free lock", func() error { return other.TryLock(ctx) }, nil},
		{"Unlock by the other", func() error { return other.Unlock(ctx) }, nil},
	} {
		want := 1
		switch step.name {
		case "the first Lock":
			want = 2
		case "FencingToken":
			want = 0
		}
		resetStats(t, admin)
		before := sent.commands.Load() + sent.pipelines.Load()
		err := step.do()
		require.ErrorIs(t, err, step.want, step.name)
		calls := commandCalls(t, admin)
		assert.Equal(t, want, calls["evalsha"], "%s: scripts by SHA", step.name)
		assert.Zero(t, calls["eval"], "%s: scripts by source", step.name)
		assert.EqualValues(t, want, sent.commands.Load()+sent.pipelines.Load()-before, "%s: round trips", step.name)
		t.Logf("%-24s %v", step.name, calls)
		maps.DeleteFunc(calls, func(name string, _ int) bool { return name == "evalsha" || slices.Contains(inScripts, name) })
		assert.Empty(t, calls, "%s: commands that nobody expects", step.name)
	}
}

// A holder that asks whether somebody waits is told by the request with which one comes to wait. A
// hold that does not ask costs nothing, and neither does a waiter for it.
func TestCounts_ofWanted(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	ctx := t.Context()
	admin := connect(t, s.Addr())
	c := clientOf(t, connect(t, s.Addr()), locker.WithTTL(time.Hour), locker.WithoutRenewal())
	other := clientOf(t, connect(t, s.Addr()), locker.WithTTL(time.Hour), locker.WithoutRenewal())
	for _, asks := range []bool{false, true} {
		m, waiter := c.Mutex("x"), other.Mutex("x")
		require.NoError(t, m.Lock(ctx))
		resetStats(t, admin)
		if asks {
			wanted := m.Hold().Wanted()
			eventually(t, "its channel is subscribed to, and it has looked again", func() bool {
				calls := commandCalls(t, admin)
				return calls["subscribe"] == 1 && calls["evalsha"]+calls["eval"] >= 2
			})
			assert.False(t, fired(wanted))
			calls := commandCalls(t, admin)
			assert.LessOrEqual(t, calls["evalsha"], 3, "two, of which one may have found no script: %v", calls)
		}
		looks := commandCalls(t, admin)["zcard"]
		waiting := testwait.Go(func() error { return waiter.Lock(ctx) })
		eventually(t, "it waits", func() bool { return commandCalls(t, admin)["zadd"] > 0 })
		if asks {
			eventually(t, "the holder hears of it", func() bool { return fired(m.Hold().Wanted()) })
		}
		calls := commandCalls(t, admin)
		assert.Equal(t, map[bool]int{true: 1}[asks], calls["publish"], "%v", calls)
		assert.LessOrEqual(t, calls["zcard"]-looks, map[bool]int{true: 1}[asks], "%v", calls)
		require.NoError(t, m.Unlock(ctx))
		require.NoError(t, <-waiting)
		require.NoError(t, waiter.Unlock(ctx))
	}
}

func fired(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
