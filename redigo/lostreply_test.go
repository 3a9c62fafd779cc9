package redigo_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
)

// faulty is a Client that reaches a server through a proxy, without renewal.
type faulty struct {
	server *testserver.RedisServer
	proxy  *testserver.Proxy
	client *locker.Client
}

func newFaulty(t *testing.T, change ...func(*redis.Pool)) *faulty {
	t.Helper()
	s := testserver.Redis(t)
	loadScripts(t, s)
	p := testserver.NewProxy(t, s.Addr())
	c := clientOf(t, newPool(t, p.Addr(), change...), locker.WithTTL(10*time.Second), locker.WithoutRenewal())
	warm(t, c)
	return &faulty{s, p, c}
}

// loseReply has the server apply what do sends and the reply get lost, before the connection breaks.
func (f *faulty) loseReply(t *testing.T, applied func() bool, do func() error) error {
	t.Helper()
	f.proxy.HoldReplies(true)
	done := async(do)
	eventually(t, "the server has applied the request, and answered", func() bool {
		_, replies := f.proxy.Held()
		return replies > 0 && applied()
	})
	f.proxy.HoldReplies(false) // of other connections
	f.proxy.ResetConns()
	return await(t, done)
}

func TestLostReply_isSentAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*redis.Pool){
		"a pool without limits": func(*redis.Pool) {},
		"a pool of one":         ofOne,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, change)
			ctx := t.Context()
			m := f.client.Mutex("x")
			held := func() bool { return isHeld(t, f.server, "x") }
			require.NoError(t, f.loseReply(t, held, func() error { return m.Lock(ctx) }))
			token, err := redis.Uint64(ask(t, f.server, "HGET", keyOf("x"), "token"), nil)
			require.NoError(t, err)
			assert.Equal(t, token, m.FencingToken(), "the token that the server knows")
			require.ErrorIs(t, f.client.Mutex("x").TryLock(ctx), locker.ErrHeld)

			ask(t, f.server, "CONFIG", "RESETSTAT")
			deadline := m.Deadline()
			extended := func() bool { return calls(t, f.server, "pexpire") == 1 }
			require.NoError(t, f.loseReply(t, extended, func() error { return m.Extend(ctx) }))
			assert.True(t, m.Deadline().After(deadline))

			released := func() bool { return !held() }
			require.NoError(t, f.loseReply(t, released, func() error { return m.Unlock(ctx) }))
			require.NoError(t, f.client.Mutex("x").TryLock(ctx))
		})
	}
}

// The reply to the first try is lost, and the next one finds nobody to ask: its error says nothing of the
// first, which took the lock.
func TestLostReply_thenRefused_leavesNothingBehind(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.proxy.DropReplies(true)
	done := async(func() error { return f.client.Mutex("x").Lock(t.Context()) })
	eventually(t, "the server has applied the take", func() bool { return isHeld(t, f.server, "x") })
	f.proxy.Sever()
	f.proxy.DropReplies(false)
	err := await(t, done)
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrHeld)
	f.proxy.Restore()
	start := time.Now()
	eventually(t, "what the attempt took is released", func() bool { return !isHeld(t, f.server, "x") })
	assert.Less(t, time.Since(start), 9*time.Second, "long before the TTL is over")
}

// A release that was refused for want of the script has not been tried: the next one that finds nothing is
// not the second.
func TestNoScript_isNoTry(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	d := driverOf(t, newPool(t, s.Addr()))
	lease := take(t, d, "x", time.Minute)
	forget(t, s, lease)
	ask(t, s, "SCRIPT", "FLUSH")
	require.ErrorIs(t, lease.Release(t.Context()), locker.ErrLost)
}

// Nor has one that was refused by who is no longer the primary.
func TestReadOnly_isNoTry(t *testing.T) {
	t.Parallel()
	before, after := testserver.Redis(t), testserver.Redis(t)
	var addr atomic.Value
	addr.Store(before.Addr())
	d := driverOf(t, newPool(t, "", func(p *redis.Pool) {
		p.DialContext = func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr.Load().(string))
		}
	}))
	lease := take(t, d, "x", time.Minute)
	forget(t, after, lease)
	addr.Store(after.Addr())
	ask(t, before, "REPLICAOF", "127.0.0.1", "1") // of nobody: it keeps its data, and takes no writes
	require.ErrorIs(t, lease.Release(t.Context()), locker.ErrLost)
}

// forget leaves on s what a failover leaves that has forgotten the hold, when another has come since.
func forget(t *testing.T, s *testserver.RedisServer, lease driver.Lease) {
	t.Helper()
	ask(t, s, "HSET", "{x}", "owner", "another", "token", lease.Token()+1, "lapsed", lease.Token()-1)
}

func TestNoScript_everyOperationBringsItsOwn(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	ctx := t.Context()
	c := clientOf(t, newPool(t, s.Addr()))
	m, other := c.Mutex("x"), c.Mutex("x")
	for _, step := range []struct {
		name string
		do   func() error
		want error
	}{
		{"Lock", func() error { return m.Lock(ctx) }, nil},
		{"TryLock", func() error { return other.TryLock(ctx) }, locker.ErrHeld},
		{"Extend", func() error { return m.Extend(ctx) }, nil},
		{"Unlock", func() error { return m.Unlock(ctx) }, nil},
	} {
		ask(t, s, "SCRIPT", "FLUSH")
		require.ErrorIs(t, step.do(), step.want, step.name)
	}
	lease, err := driverOf(t, newPool(t, s.Addr())).Propose(ctx, driver.Request{Name: "y", TTL: time.Minute}, 7)
	require.NoError(t, err)
	larger := lease.Token() + 1
	require.NoError(t, lease.Raise(ctx, larger))
	assert.Equal(t, larger, lease.Token())
}
