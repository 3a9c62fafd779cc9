package redis_test

import (
	"context"
	"net"
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
	"github.com/go-locker/locker/internal/interrupt"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redis"
)

// onScript is a hook that is called with the context of each script, before that is sent.
type onScript func(context.Context)

func (onScript) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (onScript) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (f onScript) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if isScript(cmd) {
			f(ctx)
		}
		return next(ctx, cmd)
	}
}

// interruptible makes a Client of the suite's, or for what go-redis calls.
func interruptible(t testing.TB, addr string, call onScript, change func(*goredis.Options), opts ...locker.Option) *locker.Client {
	t.Helper()
	var option redis.DriverOption
	rdb := connect(t, addr, func(o *goredis.Options) {
		o.ReadTimeout = time.Minute
		change(o)
		option = redis.Interruptible(o)
	})
	rdb.AddHook(call)
	c, err := locker.New(driverOf(t, rdb, option), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func noChange(*goredis.Options) {}

func TestInterruptible(t *testing.T) {
	t.Parallel()
	harness.RedisInterruptible(t, func(t testing.TB, addr string, dial interrupt.Dialer, opts ...locker.Option) *locker.Client {
		return interruptible(t, addr, func(context.Context) {}, func(o *goredis.Options) { o.Dialer = dial }, opts...)
	})
}

// stubborn is what go-redis calls, and heeds no context. It waits until it is told.
type stubborn struct {
	called atomic.Bool
	goOn   chan struct{}
}

func (s *stubborn) wait() {
	s.called.Store(true)
	<-s.goOn
}

func (s *stubborn) Allow() error { s.wait(); return nil }

func (s *stubborn) ReportResult(error) {}

// What go-redis calls of the application's may take its time.
func TestInterruptible_whatHeedsNoContextKeepsNoLockFromReturning(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*goredis.Options, *stubborn){
		"Dialer": func(o *goredis.Options, s *stubborn) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				s.wait()
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
		},
		"OnConnect": func(o *goredis.Options, s *stubborn) {
			o.OnConnect = func(context.Context, *goredis.Conn) error { s.wait(); return nil }
		},
		"CredentialsProvider": func(o *goredis.Options, s *stubborn) {
			o.CredentialsProvider = func() (user, password string) { s.wait(); return "", "" }
		},
		"Limiter": func(o *goredis.Options, s *stubborn) { o.Limiter = s },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			s := &stubborn{goOn: make(chan struct{})}
			var byCaller atomic.Bool
			c := interruptible(t, server.Addr(), func(context.Context) {
				byCaller.Store(byCaller.Load() || strings.Contains(string(debug.Stack()), "locker.(*Mutex)."))
			}, func(o *goredis.Options) { set(o, s) })
			ctx, cancel := context.WithCancel(t.Context())
			m := c.Mutex("x")
			locked := async(func() error { return m.Lock(ctx) })
			eventually(t, "it is called", s.called.Load)
			cancel()
			require.ErrorIs(t, await(t, locked), context.Canceled)
			close(s.goOn)
			require.NoError(t, m.Lock(withTimeout(t, patient)))
			require.NoError(t, m.Unlock(t.Context()))
			assert.Equal(t, name == "Dialer", byCaller.Load(), "go-redis dials in a goroutine of its own")
		})
	}
}

func TestInterruptible_aHookThatPanics_keepsNothingFromGoingOn(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	c := interruptible(t, testserver.Redis(t).Addr(), func(context.Context) {
		if armed.CompareAndSwap(true, false) {
			panic("a hook's")
		}
	}, noChange)
	m := c.Mutex("x")
	armed.Store(true)
	require.PanicsWithValue(t, "a hook's", func() { _ = m.Lock(t.Context()) })
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, await(t, async(c.Close)))
}

func TestInterruptible_isForOneServer(t *testing.T) {
	t.Parallel()
	rdb := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"localhost:1"}})
	t.Cleanup(func() { _ = rdb.Close() })
	_, err := redis.NewDriver(rdb, redis.Interruptible(&goredis.Options{}))
	require.ErrorIs(t, err, driver.ErrUnsupported)
}

// Package context panics if a Done is closed and its context has no error: here of a context that
// is derived from that of a script, and outlives it.
func TestInterruptible_theContextOfARequestThatIsOverHasAnError(t *testing.T) {
	t.Parallel()
	_, p, direct := behindProxy(t)
	loadScripts(t, direct)
	c := interruptible(t, p.Addr(), func(ctx context.Context) {
		_, cancel := context.WithCancel(ctx)
		t.Cleanup(cancel)
	}, noChange, locker.WithoutRenewal())
	warm(t, c)
	p.HoldRequests(true)
	ctx, cancel := context.WithCancel(t.Context())
	locked := async(func() error { return c.Mutex("x").Lock(ctx) })
	eventually(t, "a request is on its way", func() bool { n, _ := p.Held(); return n > 0 })
	cancel()
	require.ErrorIs(t, await(t, locked), context.Canceled)
	p.HoldRequests(false)
	p.ReleaseRequests()
	warm(t, c)
}
