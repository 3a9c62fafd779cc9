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

// takeOnItsWay begins a Lock of x, whose request p holds. A call of cancel ends its context.
func takeOnItsWay(t *testing.T, c *locker.Client, p *testserver.Proxy) (cancel func(), locked <-chan error) {
	t.Helper()
	p.HoldRequests(true)
	ctx, cancel := context.WithCancel(t.Context())
	locked = async(func() error { return c.Mutex("x").Lock(ctx) })
	eventually(t, "a request is on its way", func() bool { n, _ := p.Held(); return n > 0 })
	return cancel, locked
}

// interruptible makes a Client whose connections are silent for a minute before go-redis gives them
// up.
func interruptible(t *testing.T, addr string, change ...func(*goredis.Options)) (*locker.Client, *callers) {
	t.Helper()
	var option redis.DriverOption
	rdb := connect(t, addr, append(change, func(o *goredis.Options) {
		o.ReadTimeout = time.Minute
		option = redis.Interruptible(o)
	})...)
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

// The network delivers a take after its Lock has returned, and after a first release.
func TestInterruptible_aTakeThatArrivesLateIsReleased(t *testing.T) {
	t.Parallel()
	s, p, direct := behindProxy(t)
	loadScripts(t, direct)
	c, sent := interruptible(t, p.Addr())
	warm(t, c)
	cancel, locked := takeOnItsWay(t, c, p)
	p.HoldRequests(false) // what is on its way stays there
	resetStats(t, direct)
	cancel()
	require.ErrorIs(t, await(t, locked), context.Canceled)
	require.Zero(t, sent.other.Load())
	eventually(t, "a release has come, for the take may have come, too", func() bool { return scriptsRun(t, direct) == 1 })
	p.ReleaseRequests()
	eventually(t, "the take has come", func() bool { return scriptsRun(t, direct) >= 2 })
	other := clientOf(t, connect(t, s.Addr()), locker.WithTTL(time.Minute))
	require.NoError(t, other.Mutex("x").Lock(withTimeout(t, patient)), "the TTL is four minutes")
}

// The server is silent, and nothing that was asked of it is waited for.
func TestInterruptible_closeEndsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	_, p, direct := behindProxy(t)
	loadScripts(t, direct)
	c, _ := interruptible(t, p.Addr())
	warm(t, c)
	cancel, locked := takeOnItsWay(t, c, p)
	cancel()
	require.ErrorIs(t, await(t, locked), context.Canceled)
	_ = await(t, async(c.Close))
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
			c, sent := interruptible(t, server.Addr(), func(o *goredis.Options) { set(o, s) })
			ctx, cancel := context.WithCancel(t.Context())
			m := c.Mutex("x")
			locked := async(func() error { return m.Lock(ctx) })
			eventually(t, "it is called", s.called.Load)
			cancel()
			require.ErrorIs(t, await(t, locked), context.Canceled)
			close(s.goOn)
			require.NoError(t, m.Lock(withTimeout(t, patient)))
			require.NoError(t, m.Unlock(t.Context()))
			assert.Equal(t, name == "Dialer", sent.caller.Load() > 0, "go-redis dials in a goroutine of its own")
		})
	}
}

// panics is a hook that panics once.
type panics struct {
	callers

	armed atomic.Bool
}

func (p *panics) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if isScript(cmd) && p.armed.CompareAndSwap(true, false) {
			panic("a hook's")
		}
		return next(ctx, cmd)
	}
}

func TestInterruptible_aHookThatPanics_keepsNothingFromGoingOn(t *testing.T) {
	t.Parallel()
	var option redis.DriverOption
	rdb := connect(t, testserver.Redis(t).Addr(), func(o *goredis.Options) { option = redis.Interruptible(o) })
	hook := &panics{}
	rdb.AddHook(hook)
	c, err := locker.New(driverOf(t, rdb, option))
	require.NoError(t, err)
	m := c.Mutex("x")
	hook.armed.Store(true)
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

// keeps derives a context from that of each script's, which outlives the request.
type keeps struct {
	callers

	t *testing.T
}

func (k *keeps) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if isScript(cmd) {
			_, cancel := context.WithCancel(ctx)
			k.t.Cleanup(cancel)
		}
		return next(ctx, cmd)
	}
}

// Package context panics if a Done is closed and its context has no error.
func TestInterruptible_theContextOfARequestThatIsOverHasAnError(t *testing.T) {
	t.Parallel()
	_, p, direct := behindProxy(t)
	loadScripts(t, direct)
	var option redis.DriverOption
	rdb := connect(t, p.Addr(), func(o *goredis.Options) { option = redis.Interruptible(o) })
	rdb.AddHook(&keeps{t: t})
	c, err := locker.New(driverOf(t, rdb, option), locker.WithoutRenewal())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	warm(t, c)
	cancel, locked := takeOnItsWay(t, c, p)
	cancel()
	require.ErrorIs(t, await(t, locked), context.Canceled)
	p.HoldRequests(false)
	p.ReleaseRequests()
	warm(t, c)
}
