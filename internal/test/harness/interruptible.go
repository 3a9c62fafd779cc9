package harness

import (
	"bytes"
	"context"
	"errors"
	"net"
	"regexp"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/interrupt"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// RedisInterruptible tests that a request which meets no other is made by the goroutine that asks,
// and is interrupted when its context ends. client makes a Client that connects by dial; its client
// library, which has something to say to the server first, waits for a reply for a minute.
func RedisInterruptible(t *testing.T, client func(t testing.TB, addr string, dial interrupt.Dialer, opts ...locker.Option) *locker.Client) {
	for name, test := range map[string]func(*testing.T, *interruptible){
		"the caller sends its request":                         callerSends,
		"Lock returns when its context ends, connected":        func(t *testing.T, i *interruptible) { i.warm(); returnsAtEnd(t, i) },
		"Lock returns when its context ends, connecting":       returnsAtEnd,
		"Lock returns when its context ends, dialling":         returnsAtEndOfDial,
		"a take that arrives late is released":                 lateTake,
		"Close ends what is under way":                         closeEnds,
		"a server that has lost its scripts is silent":         silentWithoutScripts,
		"the server closes the connection right after a reply": closedAfterReply,
		"what is interrupted again and again leaves no other":  interruptedAtAnyMoment,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &interruptible{t: t, server: testserver.Redis(t)}
			i.proxy = testserver.NewProxy(t, i.server.Addr())
			opts := []locker.Option{locker.WithTTL(4 * time.Minute), locker.WithoutRenewal()}
			i.other = client(t, i.server.Addr(), new(net.Dialer).DialContext, opts...)
			m := i.other.Mutex("loads the scripts")
			require.NoError(t, m.Lock(t.Context()))
			require.NoError(t, m.Extend(t.Context()))
			require.NoError(t, m.Unlock(t.Context()))
			i.Client = client(t, i.proxy.Addr(), i.dial, opts...)
			test(t, i)
		})
	}
}

// interruptible is a Client whose connections can be interrupted.
type interruptible struct {
	*locker.Client

	t      testing.TB
	server *testserver.RedisServer
	proxy  *testserver.Proxy // to it
	other  *locker.Client    // which goes there directly

	caller, others atomic.Int64 // scripts, by the goroutine that has sent them
	hangs          atomic.Bool  // nothing can be dialled
}

// warm has the Client connect, and know the server's clock.
func (i *interruptible) warm() {
	i.t.Helper()
	m := i.Mutex("warm")
	require.NoError(i.t, m.Lock(i.t.Context()))
	require.NoError(i.t, m.Unlock(i.t.Context()))
}

func (i *interruptible) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if i.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &seen{c, i}, err
}

// seen is a connection on which scripts are counted.
type seen struct {
	net.Conn
	by *interruptible
}

func (s *seen) Write(b []byte) (int, error) {
	switch {
	case !bytes.Contains(bytes.ToLower(b), []byte("\r\neval")):
	case bytes.Contains(debug.Stack(), []byte("locker.(*Mutex).")):
		s.by.caller.Add(1)
	default:
		s.by.others.Add(1)
	}
	return s.Conn.Write(b)
}

// lockOnItsWay begins a Lock of x. Its request, or what goes before it, does not reach the server.
// A call of cancel ends its context.
func (i *interruptible) lockOnItsWay() (cancel func(), locked <-chan error) {
	i.t.Helper()
	i.proxy.HoldRequests(true)
	ctx, cancel := context.WithCancel(i.t.Context())
	i.t.Cleanup(cancel)
	locked = testwait.Go(func() error { return i.Mutex("x").Lock(ctx) })
	patience.Until(i.t, "a request is on its way", func() bool { n, _ := i.proxy.Held(); return n > 0 })
	return cancel, locked
}

// wantPair fails unless x can be locked, and unlocked.
func wantPair(t *testing.T, c *locker.Client) {
	t.Helper()
	m := c.Mutex("x")
	require.NoError(t, m.Lock(testwait.Context(t, time.Duration(patience))))
	require.NoError(t, m.Unlock(t.Context()))
}

func callerSends(t *testing.T, i *interruptible) {
	m := i.Mutex("x")
	for range 10 {
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Extend(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	}
	assert.Zero(t, i.others.Load())
	assert.EqualValues(t, 31, i.caller.Load(), "one more is for the server's clock")
}

// The server is silent.
func returnsAtEnd(t *testing.T, i *interruptible) {
	cancel, locked := i.lockOnItsWay()
	cancel()
	require.ErrorIs(t, patience.Result(t, locked), context.Canceled)
	i.proxy.HoldRequests(false)
	i.proxy.ReleaseRequests()
	wantPair(t, i.Client) // what was taken in vain is released, and no reply is taken for another
}

func returnsAtEndOfDial(t *testing.T, i *interruptible) {
	i.hangs.Store(true)
	err := i.Mutex("x").Lock(testwait.Context(t, 50*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	i.hangs.Store(false)
	wantPair(t, i.Client)
}

// The network delivers a take after its Lock has returned, and after a first release.
func lateTake(t *testing.T, i *interruptible) {
	i.warm()
	cancel, locked := i.lockOnItsWay()
	i.proxy.HoldRequests(false) // what is on its way stays there
	before := i.scriptsRun()
	cancel()
	require.ErrorIs(t, patience.Result(t, locked), context.Canceled)
	patience.Until(t, "a release has come, for the take may have come, too", func() bool { return i.scriptsRun() > before })
	i.proxy.ReleaseRequests()
	patience.Until(t, "the take has come", func() bool { return i.scriptsRun() > before+1 })
	wantPair(t, i.other) // the TTL is four minutes
}

// scriptsRun is how often the server was asked to run a script.
func (i *interruptible) scriptsRun() (n int) {
	for _, calls := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(i.server.Do("INFO", "commandstats").(string), -1) {
		of, err := strconv.Atoi(calls[1])
		require.NoError(i.t, err)
		n += of
	}
	return n
}

// The next request is written on a connection that is closed: it is not carried out, and made again
// on another one. A release that is made again knows that it may have been carried out.
func closedAfterReply(t *testing.T, i *interruptible) {
	i.warm()
	m := i.Mutex("x")
	for range 10 {
		before := i.scriptsRun()
		i.server.Do("CLIENT", "KILL", "TYPE", "normal")
		require.NoError(t, m.Lock(t.Context()))
		i.server.Do("CLIENT", "KILL", "TYPE", "normal")
		require.NoError(t, m.Unlock(t.Context()))
		assert.Equal(t, before+2, i.scriptsRun(), "one take, one release")
		wantPair(t, i.other) // it is free
	}
}

// The server is silent, and nothing that was asked of it is waited for.
func closeEnds(t *testing.T, i *interruptible) {
	i.warm()
	cancel, locked := i.lockOnItsWay()
	cancel()
	require.ErrorIs(t, patience.Result(t, locked), context.Canceled)
	_ = patience.Result(t, testwait.Go(i.Close))
}

// The source of a script is longer than the buffer of some client libraries.
func silentWithoutScripts(t *testing.T, i *interruptible) {
	i.warm()
	i.server.Do("SCRIPT", "FLUSH")
	i.proxy.HoldReplies(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	locked := testwait.Go(func() error { return i.Mutex("x").Lock(ctx) })
	patience.Until(t, "the script is refused", func() bool { _, n := i.proxy.Held(); return n > 0 })
	i.proxy.HoldRequests(true)
	i.proxy.HoldReplies(false)
	i.proxy.ReleaseReplies()
	patience.Until(t, "its source is on its way", func() bool { n, _ := i.proxy.Held(); return n > 0 })
	cancel()
	require.ErrorIs(t, patience.Result(t, locked), context.Canceled)
	i.proxy.HoldRequests(false)
	i.proxy.ReleaseRequests()
	wantPair(t, i.Client)
}

// Contexts end at any moment of a Lock.
func interruptedAtAnyMoment(t *testing.T, i *interruptible) {
	i.warm()
	m := i.Mutex("x")
	for n := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(n%20)*100*time.Microsecond, cancel)
		if err := m.Lock(ctx); err == nil {
			require.NoError(t, m.Unlock(t.Context()))
		} else if !errors.Is(err, context.Canceled) {
			require.NoError(t, err)
		}
		timer.Stop()
		cancel()
	}
	wantPair(t, i.Client)
}
