package redis_test

import (
	"context"
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
	"github.com/go-locker/locker/redis"
)

// callers counts scripts by the goroutine that sends them.
type callers struct{ caller, other atomic.Int64 }

func (c *callers) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (c *callers) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (c *callers) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		switch {
		case !isScript(cmd):
		case strings.Contains(string(debug.Stack()), "locker.(*Mutex)."):
			c.caller.Add(1)
		default:
			c.other.Add(1)
		}
		return next(ctx, cmd)
	}
}

// interruptible makes a Client whose connections are silent for a minute before go-redis gives them up.
func interruptible(t *testing.T, addr string) (*locker.Client, *callers) {
	t.Helper()
	var option redis.DriverOption
	rdb := connect(t, addr, func(o *goredis.Options) {
		o.ReadTimeout = time.Minute
		option = redis.Interruptible(o)
	})
	sent := &callers{}
	rdb.AddHook(sent)
	c, err := locker.New(driverOf(t, rdb, option), locker.WithTTL(4*time.Minute), locker.WithoutRenewal())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, sent
}

func TestInterruptible_theCallerSendsItsRequest(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	loadScripts(t, connect(t, s.Addr()))
	c, sent := interruptible(t, s.Addr())
	m := c.Mutex("x")
	for range 10 {
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Extend(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	}
	assert.Zero(t, sent.other.Load())
	assert.Positive(t, sent.caller.Load())
}

// The server is silent, on a connection that it knows and on a new one.
func TestInterruptible_aCallReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(testing.TB, *locker.Client){
		"connected":  warm,
		"connecting": func(testing.TB, *locker.Client) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.Redis(t)
			loadScripts(t, connect(t, s.Addr()))
			p := testserver.NewProxy(t, s.Addr())
			c, sent := interruptible(t, p.Addr())
			prepare(t, c)
			p.HoldRequests(true)
			ctx, cancel := context.WithCancel(t.Context())
			m := c.Mutex("x")
			locked := async(func() error { return m.Lock(ctx) })
			eventually(t, "a request is on its way", func() bool { n, _ := p.Held(); return n > 0 })
			cancel()
			require.ErrorIs(t, await(t, locked), context.Canceled)
			assert.Positive(t, sent.caller.Load())

			p.HoldRequests(false)
			p.ReleaseRequests()
			require.NoError(t, m.Lock(withTimeout(t, patient)), "what was taken in vain is released")
			require.NoError(t, m.Unlock(t.Context()), "no reply is taken for another")
		})
	}
}

func TestInterruptible_isForOneServer(t *testing.T) {
	t.Parallel()
	rdb := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"localhost:1"}})
	t.Cleanup(func() { _ = rdb.Close() })
	_, err := redis.NewDriver(rdb, redis.Interruptible(&goredis.Options{}))
	require.ErrorIs(t, err, driver.ErrUnsupported)
}
