package redis_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redis"
)

// onScript is a hook that is called with the context of each script, or pipeline of scripts, before
// that is sent: each is one round trip.
type onScript func(context.Context)

func (onScript) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (f onScript) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if isScript(cmds[0]) {
			f(ctx)
		}
		return next(ctx, cmds)
	}
}

func (f onScript) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if isScript(cmd) {
			f(ctx)
		}
		return next(ctx, cmd)
	}
}

// Tracers and the like start a goroutine that ends with the context of a command.
func TestSharedClient_aHookSeesEachCommandOnceWithAContextThatEnds(t *testing.T) {
	t.Parallel()
	var seen, waiting atomic.Int64
	c, rdb := newClient(t, testserver.Redis(t).Addr())
	rdb.AddHook(onScript(func(ctx context.Context) {
		seen.Add(1)
		waiting.Add(1)
		if ctx.Err() != nil {
			t.Errorf("the context of a command has ended before it is sent: %v", ctx.Err())
		}
		go func() {
			<-ctx.Done()
			assert.Error(t, ctx.Err())
			waiting.Add(-1)
		}()
	}))
	warm(t, c)
	seen.Store(0)
	const pairs = 20
	for range pairs {
		warm(t, c)
	}
	assert.EqualValues(t, 2*pairs, seen.Load())
	eventually(t, "the contexts of all commands have ended", func() bool { return waiting.Load() == 0 })
}

// The server closes connections that were used just now, as it does when it restarts.
func TestSharedClient_closedConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	one, cluster := testserver.Redis(t), testserver.Cluster(t)
	for url, servers := range map[string][]*testserver.RedisServer{one.URL(): {one}, clusterURL(cluster): cluster.Servers()} {
		c := openURL(t, url, locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		held := 0
		for range 30 {
			var connected sync.WaitGroup
			for range 100 { // a connection each
				connected.Go(func() { _, _ = c.Inspect(t.Context(), "x") })
			}
			connected.Wait()
			m := c.Mutex("x")
			if m.Lock(t.Context()) != nil {
				continue
			}
			held++
			for _, s := range servers {
				s.Do("CLIENT", "KILL", "TYPE", "normal")
			}
			require.NoError(t, m.Unlock(t.Context()), "Unlock %d over %s", held, url)
		}
		assert.Greater(t, held, 20)
	}
}

// All connections of the application's pool fall silent. The requests of the holds cannot try them
// one by one.
func TestSharedClient_connectionsThatFallSilentAreLeft(t *testing.T) {
	t.Parallel()
	p := testserver.NewProxy(t, testserver.SharedRedis(t).Addr())
	rdb := connect(t, p.Addr(), heedingCtx)
	c := clientOf(t, rdb, locker.WithTTL(3*time.Second))
	var connected sync.WaitGroup
	for range 20 {
		connected.Go(func() { rdb.BLPop(t.Context(), 100*time.Millisecond, "nothing") })
	}
	connected.Wait()
	m, other := c.Mutex("silent/1"), c.Mutex("silent/2")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, other.Lock(t.Context()))
	p.HushConns()
	require.NoError(t, m.Unlock(t.Context()))
	time.Sleep(4 * time.Second)
	require.NoError(t, other.Unlock(t.Context()), "it was renewed meanwhile")
}

// The server is far away. Requests share round trips, and a connection that is being set up.
func TestSharedClient_theDeadlineOfOneRequestFailsNoOther(t *testing.T) {
	t.Parallel()
	p := testserver.NewProxy(t, testserver.SharedRedis(t).Addr())
	p.Delay(30 * time.Millisecond)
	d := driverOf(t, connect(t, p.Addr(), heedingCtx))
	for _, connected := range []bool{false, true} {
		var all sync.WaitGroup
		for i := range 161 {
			all.Go(func() {
				req := driver.Request{Name: claims.Fresh(), TTL: time.Minute}
				if i != 10 {
					_, err := claims.Take(t.Context(), d, req)
					assert.NoError(t, err, "connected: %v", connected)
				} else if _, err := claims.Take(withTimeout(t, 100*time.Millisecond), d, req); err != nil {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
			})
		}
		all.Wait()
	}
}

// A pipeline of renewals goes to several nodes, and the application has the connections of one.
func TestSharedClient_holdsOutliveANodeWhosePoolIsUsedUp(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t)
	ctx := t.Context()
	for name, opts := range map[string][]redis.DriverOption{"without WAIT": nil, "WAIT": {redis.WaitReplicas(1, time.Second)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := testwait.Closed(goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.Addrs(), PoolSize: 1, PipelinePoolSize: -1}), nil)(t)
			d := driverOf(t, rdb, opts...)
			nodes := map[*goredis.Client]bool{}
			var leases []driver.Claim
			var last string
			for i := 0; len(nodes) < 2; i++ {
				key := fmt.Sprint(name, i)
				node, err := rdb.MasterForKey(ctx, "{"+key+"}")
				require.NoError(t, err)
				if !nodes[node] {
					nodes[node], last = true, "{"+key+"}"
					leases = append(leases, take(t, d, key, time.Minute))
				}
			}
			popped := async(func() error { return rdb.BLPop(ctx, 4*time.Second, last+"list").Err() })
			node, err := rdb.MasterForKey(ctx, last)
			require.NoError(t, err)
			eventually(t, "it has the connection", func() bool { return node.PoolStats().IdleConns == 0 })
			for i, err := range d.ExtendAll(withTimeout(t, 2*time.Second), leases, time.Minute) {
				require.NoError(t, err, "lease %d", i)
				require.NoError(t, leases[i].Release(withTimeout(t, 2*time.Second)), "lease %d", i)
			}
			require.Empty(t, popped, "nothing has freed the connection")
			require.ErrorIs(t, await(t, popped), goredis.Nil)
		})
	}
}

func TestSlowness_endsNoHold(t *testing.T) {
	t.Parallel()
	network := testserver.NewProxy(t, testserver.SharedRedis(t).Addr())
	c, _ := newClient(t, network.Addr(), locker.WithTTL(harness.SilenceTTL))
	harness.OutlivesSlowness(t, c.Mutex("x"), network)
}

// isScript leaves out what go-redis sends to set up a connection.
func isScript(cmd goredis.Cmder) bool { return cmd.Name() == "evalsha" || cmd.Name() == "eval" }
