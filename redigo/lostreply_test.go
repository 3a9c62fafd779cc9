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
