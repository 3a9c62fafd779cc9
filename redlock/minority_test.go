package redlock_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redigo"
	"github.com/go-locker/locker/redis"
	"github.com/go-locker/locker/redlock"
)

// heedless is what go-redis is by default: it ends no request when its context ends.
func heedless(*goredis.Options) {}

// What a stopped node is sent it does when it wakes: by then it has to be undone, or to expire.
func TestMinority_thatWakesKeepsNoKey(t *testing.T) {
	for name, change := range map[string]func(*goredis.Options){"heeding ctx": heedingCtx, "heedless": heedless} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			q := newQuorum(t, 3)
			c, err := locker.New(driverOver(t, q.addrs(), change), locker.WithTTL(ttl))
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			held := c.Mutex("held-before")
			require.NoError(t, held.Lock(t.Context()))
			q.servers[2].Stop()
			for range 12 {
				m := c.Mutex("x")
				require.NoError(t, m.Lock(t.Context()))
				require.NoError(t, m.Unlock(t.Context()))
			}
			require.NoError(t, held.Unlock(t.Context()))
			last := c.Mutex("held-after")
			require.NoError(t, last.Lock(t.Context()))
			q.servers[2].Continue()
			q.eventuallyFree(t, "x", 0, 1, 2)
			q.eventuallyFree(t, "held-before", 0, 1, 2)
			require.NoError(t, last.Extend(t.Context()), "what was taken meanwhile is still held")
			eventually(t, "the node that woke has joined", func() bool {
				require.NoError(t, last.Extend(t.Context()))
				return slices.Equal(q.heldAt(t, "held-after"), all(3, true))
			})
			require.NoError(t, last.Unlock(t.Context()))
			q.eventuallyFree(t, "held-after", 0, 1, 2)
		})
	}
}

func TestMajority_unreachableIsAnErrorThatSaysHowEachNodeVoted(t *testing.T) {
	for name, stop := range map[string]func(*testserver.RedisServer){
		"dead": (*testserver.RedisServer).Kill, "stopped": (*testserver.RedisServer).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQuorum(t, 3)
			c := client(t, q.addrs(), locker.WithTTL(10*time.Second))
			m := c.Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			stop(q.servers[0])
			stop(q.servers[1])
			free := c.Mutex("free")
			for op, err := range map[string]error{
				"lock": free.TryLock(t.Context()), "extend": m.Extend(t.Context()), "unlock": m.Unlock(t.Context()),
			} {
				var e *redlock.Error
				require.ErrorAs(t, err, &e, op)
				require.NotErrorIs(t, err, locker.ErrHeld)
				require.NotErrorIs(t, err, locker.ErrLost)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "no context of the caller's has ended")
				require.Len(t, e.Votes, 3)
				for i, v := range e.Votes {
					assert.Equal(t, q.servers[i].Addr(), v.Node)
					assert.Equal(t, i < 2, v.Err != nil && !strings.Contains(v.Err.Error(), "not answered yet"), "%s: %v", op, v)
					assert.Contains(t, err.Error(), v.Node)
				}
			}
			q.eventuallyFree(t, "free", 2)
			q.eventuallyFree(t, "x", 2)
			if name == "stopped" {
				q.servers[0].Continue()
				q.servers[1].Continue()
			}
		})
	}
}

func TestNodes_ofBothAdapters(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	mixed := func() *locker.Client {
		var nodes []driver.Driver
		for i, s := range q.servers {
			var n driver.Driver
			var err error
			if i == 1 {
				pool := &redigolib.Pool{DialContext: func(ctx context.Context) (redigolib.Conn, error) {
					return redigolib.DialContext(ctx, "tcp", s.Addr())
				}}
				t.Cleanup(func() { _ = pool.Close() })
				n, err = redigo.NewDriver(pool)
			} else {
				n, err = redis.NewDriver(connect(t, s.Addr(), heedingCtx))
			}
			require.NoError(t, err)
			nodes = append(nodes, n)
		}
		c, err := redlock.New(nodes)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b := mixed().Mutex("x"), unhurriedClient(t, q.addrs()).Mutex("x")
	var last uint64
	for range 3 {
		for _, m := range []*locker.Mutex{a, b} {
			require.NoError(t, m.Lock(t.Context()))
			assert.Greater(t, m.FencingToken(), last)
			last = m.FencingToken()
			require.NoError(t, m.Extend(t.Context()))
			require.ErrorIs(t, map[*locker.Mutex]*locker.Mutex{a: b, b: a}[m].TryLock(t.Context()), locker.ErrHeld)
			require.NoError(t, m.Unlock(t.Context()))
			q.eventuallyFree(t, "x", 0, 1, 2)
		}
	}
	// The one that go-redis reaches is down: the other two are one of each.
	q.servers[0].Kill()
	require.NoError(t, a.Lock(t.Context()))
	require.NoError(t, a.Unlock(t.Context()))
}
