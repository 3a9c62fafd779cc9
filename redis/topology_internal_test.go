package redis

import (
	"context"
	"maps"
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

// The servers are silent, too: then Lock returns when its context ends, also if it is the first.
func TestOpen_theCallerSendsItsRequest(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) (driver.URL, []*testserver.RedisServer){
		"Sentinel": func(t *testing.T) (driver.URL, []*testserver.RedisServer) {
			g := testserver.Sentinel(t)
			return driver.URL{Hosts: g.Addrs(), Query: url.Values{"master_name": {g.MasterName()}}}, g.Servers()
		},
		"Cluster": func(t *testing.T) (driver.URL, []*testserver.RedisServer) {
			c := testserver.Cluster(t)
			return driver.URL{Hosts: c.Addrs(), Query: url.Values{"cluster": {"true"}}}, c.Servers()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, servers := start(t)
			u.Scheme = "redis"
			u.Query.Set("read_timeout", "1m")
			others := &byOthers{}
			m, first := mutexOf(t, u, others), mutexOf(t, u, others)
			for range 10 {
				require.NoError(t, m.Lock(t.Context()))
				require.NoError(t, m.Unlock(t.Context()))
			}
			assert.Zero(t, others.Load())

			stopped := func(ctx context.Context, m *locker.Mutex, want error) {
				for _, s := range servers {
					s.Stop()
				}
				require.ErrorIs(t, m.Lock(ctx), want)
				for _, s := range servers {
					s.Continue()
				}
			}
			stopped(testwait.Context(t, 100*time.Millisecond), m, context.DeadlineExceeded)
			ended, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			stopped(ended, first, context.Canceled)
			require.NoError(t, m.Lock(testwait.Context(t, 20*time.Second)))
			require.NoError(t, m.Unlock(t.Context()))
			require.NoError(t, first.Lock(testwait.Context(t, 20*time.Second)))
		})
	}
}

// mutexOf makes a Mutex of a Client of its own, whose go-redis waits for a reply for a minute.
func mutexOf(t *testing.T, u driver.URL, hook goredis.Hook) *locker.Mutex {
	t.Helper()
	u.Query = maps.Clone(u.Query) // parameters that are taken are removed
	rdb, opts, err := client(t.Context(), &u, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(hook)
	d, err := NewDriver(rdb, opts...)
	require.NoError(t, err)
	c, err := locker.New(d, locker.WithTTL(4*time.Minute), locker.WithoutRenewal())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c.Mutex("x")
}
