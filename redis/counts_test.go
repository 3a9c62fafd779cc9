package redis_test

import (
	"context"
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
type roundTrips struct{ commands, pipelines atomic.Int64 }

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
		}
		return next(ctx, cmds)
	}
}

// isScript leaves out what go-redis sends to set up a connection.
func isScript(cmd goredis.Cmder) bool { return cmd.Name() == "evalsha" || cmd.Name() == "eval" }

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
