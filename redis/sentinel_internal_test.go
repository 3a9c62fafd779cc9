package redis

import (
	"context"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// byOthers counts the commands that are not sent by the goroutine that asks.
type byOthers struct{ atomic.Int64 }

func (*byOthers) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (*byOthers) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (b *byOthers) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if !strings.Contains(string(debug.Stack()), "locker.(*Mutex).") {
			b.Add(1)
		}
		return next(ctx, cmd)
	}
}

func TestSentinel_theCallerSendsItsRequest(t *testing.T) {
	t.Parallel()
	g := testserver.Sentinel(t)
	rdb, opts, err := client(t.Context(), &driver.URL{
		Scheme: "redis", Hosts: g.Addrs(), Query: url.Values{"master_name": {g.MasterName()}, "read_timeout": {"1m"}},
	}, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	others := &byOthers{}
	rdb.AddHook(others)
	d, err := NewDriver(rdb, opts...)
	require.NoError(t, err)
	c, err := locker.New(d, locker.WithTTL(4*time.Minute), locker.WithoutRenewal())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	m := c.Mutex("x")
	for range 10 {
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	}
	assert.Zero(t, others.Load())

	g.Primary().Stop()
	require.ErrorIs(t, m.Lock(testwait.Context(t, 100*time.Millisecond)), context.DeadlineExceeded)
	g.Primary().Continue()
	require.NoError(t, m.Lock(testwait.Context(t, 20*time.Second)))
}
