package redigo_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// faulty is a Client that reaches a server through a proxy, without renewal.
type faulty struct {
	server *testserver.RedisServer
	proxy  *testserver.Proxy
	client *locker.Client
}

const faultyTTL = 10 * time.Second

func newFaulty(t *testing.T, change ...func(*redis.Pool)) *faulty {
	t.Helper()
	s := testserver.Redis(t)
	loadScripts(t, s)
	p := testserver.NewProxy(t, s.Addr())
	c := clientOf(t, newPool(t, p.Addr(), change...), locker.WithTTL(faultyTTL), locker.WithoutRenewal())
	warm(t, c)
	return &faulty{s, p, c}
}

// The reply to the first try is lost. That the next one finds nobody to ask, or is refused, says
// nothing of the first, which took the lock.
func TestLostReply_thenAFailure_leavesNothingBehind(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprintf("refused: %v", refused), func(t *testing.T) {
			t.Parallel()
			var away atomic.Bool
			f := newFaulty(t, func(p *redis.Pool) {
				dial := p.DialContext
				p.DialContext = func(ctx context.Context) (redis.Conn, error) {
					if away.Load() {
						return nil, errors.New("away")
					}
					return dial(ctx)
				}
			})
			f.proxy.HoldReplies(true)
			done := async(func() error { return f.client.Mutex("x").Lock(t.Context()) })
			eventually(t, "the server has applied the take", func() bool { return isHeld(t, f.server, "x") })
			dump, want := ask(t, f.server, "DUMP", keyOf("x")), "away"
			if refused {
				want = "WRONGTYPE"
				ask(t, f.server, "DEL", keyOf("x"))
				ask(t, f.server, "SADD", keyOf("x"), "no lock")
			}
			away.Store(!refused)
			f.proxy.HoldReplies(false)
			f.proxy.ResetConns()
			require.ErrorContains(t, await(t, done), want)
			if refused {
				ask(t, f.server, "RESTORE", keyOf("x"), (faultyTTL + keep).Milliseconds(), dump, "REPLACE")
			}
			away.Store(false)
			testwait.Patience(faultyTTL/2).Until(t, "what the attempt took is released", func() bool { return !isHeld(t, f.server, "x") })
		})
	}
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
