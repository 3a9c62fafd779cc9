package redis_test

import (
	"context"
	"errors"
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
	"github.com/go-locker/locker/redis"
)

// clusterClients are Clients of a cluster, without renewal: by URL, with and without WAIT, and over the
// application's own go-redis client with its default options.
func clusterClients(t *testing.T, c *testserver.RedisCluster) map[string]*locker.Client {
	t.Helper()
	return map[string]*locker.Client{
		"by URL":           openURL(t, clusterURL(c), lasting...),
		"WAIT":             openURL(t, clusterURL(c)+"&replicas=1", lasting...),
		"NewClusterClient": clientOf(t, connectCluster(t, c), lasting...),
	}
}

// A slot goes to and fro all the while: go-redis gives up on some requests with ASK or MOVED.
func TestCluster_operationsWhileTheirSlotMoves(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var pairs atomic.Int64
	for kind, client := range clusterClients(t, c) {
		for range 2 {
			all.Go(func() {
				for m := client.Mutex("x"); ctx.Err() == nil; pairs.Add(1) {
					if !assert.NoError(t, m.Lock(t.Context()), kind) {
						return
					}
					assert.NoError(t, m.Extend(t.Context()), kind)
					assert.NoError(t, m.Unlock(t.Context()), kind)
				}
			})
		}
	}
	for range 5 {
		move := c.StartMove(keyOf("x"), c.OtherPrimary(keyOf("x")))
		before := pairs.Load()
		eventually(t, "some lock meanwhile", func() bool { return t.Failed() || pairs.Load() > before+5 })
		move.MoveKeys()
		eventually(t, "some lock meanwhile", func() bool { return t.Failed() || pairs.Load() > before+10 })
		move.Finish()
	}
	stop()
	all.Wait()
}

// A new name is taken where its slot moves to, and the mark is where it comes from. If there were another, Redis could not move the slot.
func TestCluster_aNewNameWhoseSlotMoves(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t)
	ctx := t.Context()
	rdb := connectCluster(t, c)
	slot := rdb.ClusterKeySlot(ctx, keyOf("x")).Val()
	sameSlot := func(i int) (name string, next int) {
		for ; ; i++ {
			if name = fmt.Sprint("n", i); rdb.ClusterKeySlot(ctx, keyOf(name)).Val() == slot {
				return name, i + 1
			}
		}
	}
	client := openURL(t, clusterURL(c))
	x := client.Mutex("x")
	require.NoError(t, x.Lock(ctx))
	move := c.StartMove(keyOf("x"), c.OtherPrimary(keyOf("x")))
	next := 0
	for _, before := range []func(){func() {}, move.MoveKeys, move.Finish} {
		before()
		var name string
		name, next = sameSlot(next)
		m := client.Mutex(name)
		require.NoError(t, m.Lock(ctx))
		assert.Greater(t, m.FencingToken(), uint64(1))
		require.NoError(t, m.Unlock(ctx))
	}
	require.NoError(t, x.Unlock(ctx))
}

// Keys move one by one. Who asks when some have is answered where the hash is, and makes no second
// queue or mark there: Redis could not move the first.
func TestCluster_waitersComeWhileTheKeysOfALockAreApart(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t, testserver.RedisReplicas(0))
	ctx := t.Context()
	req := driver.Request{Name: "locker:x", TTL: time.Minute}
	const hash, queue = "{locker:x}", "{locker:x}:queue"
	for name, moved := range map[string][]string{"the hash": {hash}, "the queue": {queue}, "all but the mark": {hash, queue}} {
		t.Run(name, func(t *testing.T) {
			rdb := connectCluster(t, c)
			waits := func() <-chan error {
				d, held := driverOf(t, rdb), make(chan error, 1000)
				done := async(func() error {
					l, err := claims.Wait(ctx, d, req, func(err error) { held <- err })
					return errors.Join(err, l.Release(ctx))
				})
				require.ErrorIs(t, <-held, locker.ErrHeld)
				return done
			}
			holder := take(t, driverOf(t, rdb), req.Name, req.TTL)
			all := []<-chan error{waits(), waits()}
			target := c.OtherPrimary(hash)
			move := c.StartMove(hash, target)
			for _, key := range moved {
				move.MoveKey(key)
			}
			all = append(all, waits())
			if len(moved) > 1 {
				_, err := connect(t, target.Addr()).Pipelined(ctx, func(p goredis.Pipeliner) error {
					p.Do(ctx, "ASKING")
					return p.PExpire(ctx, hash, keep-time.Millisecond).Err() // the hold, which the first waiter finds out
				})
				require.NoError(t, err)
				require.NoError(t, awaitLong(t, all[0]))
				all = all[1:]
				move.Finish()
			} else {
				move.Finish()
				require.NoError(t, holder.Release(ctx))
			}
			for _, done := range all {
				require.NoError(t, awaitLong(t, done))
			}
		})
	}
}

func TestCluster_renewalsWhoseSlotsMove(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t)
	ctx := t.Context()
	rdb := connectCluster(t, c)
	with := driverOf(t, rdb, redis.WaitReplicas(1, time.Second))
	for kind, d := range map[string]claims.Driver{"without WAIT": driverOf(t, rdb), "WAIT": with} {
		t.Run(kind, func(t *testing.T) {
			var leases []driver.Claim
			for i := range 30 {
				leases = append(leases, take(t, d, fmt.Sprint(kind, i), time.Minute))
			}
			extended := func(when string) {
				for i, err := range d.ExtendAll(ctx, leases, 2*time.Minute) {
					require.NoError(t, err, "%s: lease %d", when, i)
				}
			}
			extended("before")
			var moves []*testserver.SlotMove
			for i := range 3 {
				key := fmt.Sprintf("{%s%d}", kind, 10*i)
				moves = append(moves, c.StartMove(key, c.OtherPrimary(key)))
			}
			moves[1].MoveKeys()
			moves[2].Finish()
			extended("one begun, one half done, one done")
			require.NoError(t, connect(t, c.PrimaryOf(keyOf("x")).Addr()).ScriptFlush(ctx).Err())
			extended("without the scripts")
			moves[0].Finish()
			moves[1].Finish()
			c.Failover(fmt.Sprintf("{%s%d}", kind, 0))
			extended("after a failover")
			for _, l := range leases {
				require.NoError(t, l.Release(ctx))
			}
		})
	}
}

// A subscription follows the slot, and the queue moves with it: so order is kept.
func TestCluster_whoWaitsIsWokenInOrderAfterTheSlotHasMoved(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t)
	if !c.Servers()[0].HasShardChannels() {
		t.Skip("channels belong to a slot from Redis 7 on")
	}
	ctx := t.Context()
	all := clusterClients(t, c)
	holder := openURL(t, clusterURL(c), lasting...).Mutex("x")
	require.NoError(t, holder.Lock(ctx))
	kinds := []string{"WAIT", "by URL", "NewClusterClient", "by URL", "WAIT"}
	admin := connect(t, c.PrimaryOf(keyOf("x")).Addr())
	got := make(chan string, len(kinds))
	var done []<-chan error
	for i, kind := range kinds {
		m := all[kind].Mutex("x")
		done = append(done, async(func() error {
			if err := m.Lock(ctx); err != nil {
				return err
			}
			got <- kind
			return m.Unlock(ctx)
		}))
		eventually(t, kind+" waits", func() bool { return admin.ZCard(ctx, keyOf("x")+":queue").Val() == int64(i+1) })
	}
	listen := func() bool { return harness.RedisListening(c.PrimaryOf(keyOf("x")))(len(all)) }
	eventually(t, "all listen", listen)
	c.MoveSlot(keyOf("x"), c.OtherPrimary(keyOf("x")))
	eventually(t, "all listen where the slot is now", listen)
	require.NoError(t, holder.Unlock(ctx))
	for i, d := range done {
		require.NoError(t, awaitLong(t, d), kinds[i])
	}
	for _, kind := range kinds {
		assert.Equal(t, kind, <-got)
	}
}
