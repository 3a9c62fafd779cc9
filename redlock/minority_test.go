package redlock_test

import (
	"context"
	"net"
	"slices"
	"strconv"
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

// slowConn takes its time for each request.
type slowConn struct{ net.Conn }

const slowness = 200 * time.Millisecond

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(slowness)
	return c.Conn.Write(b)
}

func slow(o *goredis.Options) {
	o.ContextTimeoutEnabled = true
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return slowConn{conn}, err
	}
}

// heedless is what go-redis is by default: it ends no request when its context ends.
func heedless(*goredis.Options) {}

// faults are what may happen to one node of three.
var faults = []struct {
	name   string
	change func(*goredis.Options) // of the client of that node
	cause  func(t *testing.T, s *testserver.RedisServer, rdb *goredis.Client)
}{
	{"stopped", heedingCtx, func(t *testing.T, s *testserver.RedisServer, _ *goredis.Client) {
		s.Stop()
		t.Cleanup(s.Continue)
	}},
	{"stopped, and a client without time-outs", heedless, func(t *testing.T, s *testserver.RedisServer, _ *goredis.Client) {
		s.Stop()
		t.Cleanup(s.Continue)
	}},
	{"dead", heedingCtx, func(_ *testing.T, s *testserver.RedisServer, _ *goredis.Client) { s.Kill() }},
	{"slow", slow, func(*testing.T, *testserver.RedisServer, *goredis.Client) {}},
	{"refusing writes", heedingCtx, func(t *testing.T, _ *testserver.RedisServer, rdb *goredis.Client) {
		require.NoError(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	}},
}

// That nothing is waited for, virtual time shows: see TestAcquire_isDecidedByAMajority and TestFaults_oneNodeHangsAfterASplitVote.
func TestMinority_withAFaultFailsNothing(t *testing.T) {
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			q := newQuorum(t, 3)
			changes := []func(*goredis.Options){fault.change, heedingCtx, heedingCtx}
			var nodes []driver.Driver
			for i, s := range q.servers {
				n, err := redis.NewDriver(connect(t, s.Addr(), changes[i]))
				require.NoError(t, err)
				nodes = append(nodes, n)
			}
			d, err := redlock.NewDriver(nodes, redlock.NodeTimeout(2*time.Second))
			require.NoError(t, err)
			t.Cleanup(func() { _ = d.Close() })
			c, err := locker.New(d, locker.WithTTL(long))
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			fault.cause(t, q.servers[0], q.direct[0])
			for i := range 3 {
				m := c.Mutex(strconv.Itoa(i))
				require.NoError(t, m.Lock(t.Context()))
				require.NoError(t, m.Extend(t.Context()))
				require.NoError(t, m.Unlock(t.Context()))
			}
		})
	}
}

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

// With a majority that hangs the one that says held decides nothing.
func TestMajority_unreachableIsNotErrHeld(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	other := unhurriedClient(t, q.addrs())
	require.NoError(t, other.Mutex("x").Lock(t.Context()))
	eventually(t, "all have it", func() bool { return slices.Equal(q.heldAt(t, "x"), all(3, true)) })
	c := unhurriedClient(t, q.addrs())
	err := c.Mutex("x").TryLock(t.Context())
	require.ErrorIs(t, err, locker.ErrHeld)
	var e *redlock.Error
	require.ErrorAs(t, err, &e, "the votes are there as well")
	q.servers[0].Kill()
	require.ErrorIs(t, c.Mutex("x").TryLock(t.Context()), locker.ErrHeld, "a majority says so")
	q.servers[1].Kill()
	err = c.Mutex("x").TryLock(t.Context())
	require.NotErrorIs(t, err, locker.ErrHeld)
	var refused *net.OpError
	require.ErrorAs(t, err, &refused, "the client library's own error")
	assert.Contains(t, err.Error(), q.servers[2].Addr()+": held")
}

func TestTokens_areRaisedOnTheNodesThatAreBehind(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	ctx := t.Context()
	ahead := time.Now().Add(time.Hour).UnixMicro()
	for i, rdb := range q.direct {
		require.NoError(t, rdb.HSet(ctx, key("x"), "token", ahead+int64(10*i), "lapsed", 0).Err())
		require.NoError(t, rdb.PExpire(ctx, key("x"), keep).Err())
	}
	c := unhurriedClient(t, q.addrs())
	var last uint64
	for range 5 {
		m := c.Mutex("x")
		require.NoError(t, m.Lock(ctx))
		token := m.FencingToken()
		assert.Greater(t, token, max(last, uint64(ahead)))
		last = token
		agreed := 0
		for _, rdb := range q.direct {
			if rdb.HGet(ctx, key("x"), "token").Val() == strconv.FormatUint(token, 10) {
				agreed++
			}
		}
		assert.GreaterOrEqual(t, agreed, 2, "a majority has the token of the hold")
		require.NoError(t, m.Extend(ctx))
		require.NoError(t, m.Unlock(ctx))
	}
}

func TestExtend_hasANodeThatCameBackEmptyJoinAgain(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	ctx := t.Context()
	c := unhurriedClient(t, q.addrs(), locker.WithoutRenewal())
	m := c.Mutex("x")
	require.NoError(t, m.Lock(ctx))
	eventually(t, "all have it", func() bool { return slices.Equal(q.heldAt(t, "x"), all(3, true)) })
	require.NoError(t, m.Extend(ctx), "from which a node counts that granted late")
	q.servers[0].Restart() // a request of the Extend may still be under way, and have it join at once
	eventually(t, "all have it again", func() bool {
		require.NoError(t, m.Extend(ctx))
		return slices.Equal(q.heldAt(t, "x"), all(3, true))
	})
	token, err := q.direct[0].HGet(ctx, key("x"), "token").Uint64()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, token, m.FencingToken(), "its own clock, if that is more than a second past the hold's token")
	// It counts: another of the nodes may go now.
	q.servers[1].Kill()
	require.NoError(t, m.Extend(ctx))
	require.NoError(t, m.Unlock(ctx))
	q.eventuallyFree(t, "x", 0, 2)
}

func TestExtend_withoutAMajorityThatHasTheLockIsALoss(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	ctx := t.Context()
	m := unhurriedClient(t, q.addrs(), locker.WithoutRenewal()).Mutex("x")
	require.NoError(t, m.Lock(ctx))
	eventually(t, "all have it", func() bool { return slices.Equal(q.heldAt(t, "x"), all(3, true)) })
	require.NoError(t, q.direct[0].FlushAll(ctx).Err())
	require.NoError(t, q.direct[1].FlushAll(ctx).Err())
	require.ErrorIs(t, m.Extend(ctx), locker.ErrLost)
	<-m.Lost()
	q.eventuallyFree(t, "x", 0, 1, 2)
	require.ErrorIs(t, m.Unlock(ctx), locker.ErrLost)
	require.NoError(t, m.Lock(ctx))
	require.NoError(t, m.Unlock(ctx))
}

func TestUnlock_ofAMinorityIsALoss(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	ctx := t.Context()
	m := unhurriedClient(t, q.addrs(), locker.WithoutRenewal()).Mutex("x")
	require.NoError(t, m.Lock(ctx))
	eventually(t, "all have it", func() bool { return slices.Equal(q.heldAt(t, "x"), all(3, true)) })
	require.NoError(t, q.direct[0].FlushAll(ctx).Err())
	require.NoError(t, q.direct[1].FlushAll(ctx).Err())
	require.ErrorIs(t, m.Unlock(ctx), locker.ErrLost)
	q.eventuallyFree(t, "x", 2)
}

// An attempt that is denied by two nodes gives back the third, though its answer comes late.
func TestLock_thatFailsGivesBackWhatItGot(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	ctx := t.Context()
	proxy := testserver.NewProxy(t, q.servers[2].Addr())
	addrs := q.addrs()
	addrs[2] = proxy.Addr()
	for _, addr := range q.addrs()[:2] {
		n, err := redis.NewDriver(connect(t, addr))
		require.NoError(t, err)
		t.Cleanup(func() { _ = n.Close() })
		_, err = n.Acquire(ctx, driver.Request{Name: "locker:x", TTL: time.Minute})
		require.NoError(t, err)
	}
	c := unhurriedClient(t, addrs, locker.WithTTL(time.Minute))
	require.NoError(t, c.Mutex("y").TryLock(ctx))
	eventually(t, "the third, which was asked for its clock first, has answered", func() bool { return q.heldAt(t, "y")[2] })
	require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld)
	q.eventuallyFree(t, "x", 2)
	proxy.HoldReplies(true)
	require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld)
	eventually(t, "the third is taken", func() bool { return q.heldAt(t, "x")[2] })
	proxy.ReleaseReplies()
	q.eventuallyFree(t, "x", 2)
	proxy.DropReplies(true)
	require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld)
	proxy.DropReplies(false)
	proxy.ResetConns()
	q.eventuallyFree(t, "x", 2)
}

func TestClose_releasesAtAllNodes(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 5)
	c := unhurriedClient(t, q.addrs())
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, c.Mutex(name).Lock(t.Context()))
	}
	require.NoError(t, c.Close())
	for _, name := range []string{"a", "b", "c"} {
		q.eventuallyFree(t, name, 0, 1, 2, 3, 4)
	}
	require.ErrorIs(t, c.Mutex("a").Lock(t.Context()), locker.ErrClosed)
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
