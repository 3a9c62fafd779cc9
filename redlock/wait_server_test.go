package redlock_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redlock"
)

// queueing returns how many wait at each node.
func (q *quorum) queueing(t testing.TB) []int64 {
	t.Helper()
	n := make([]int64, len(q.direct))
	for i, rdb := range q.direct {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		n[i], _ = rdb.ZCard(ctx, key(contested)+":queue").Result()
		cancel()
	}
	return n
}

// eventuallyQueueing waits until so many wait at those nodes.
func (q *quorum) eventuallyQueueing(t testing.TB, want int64, nodes ...int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait at %v", want, nodes), func() bool {
		waiting := q.queueing(t)
		for _, i := range nodes {
			if waiting[i] != want {
				return false
			}
		}
		return true
	})
}

// crowd is waiters, each of which has the lock for a moment.
type crowd struct {
	t      *testing.T
	all    sync.WaitGroup
	inside atomic.Int32
	served atomic.Int32

	mu    sync.Mutex
	token uint64
	errs  []error
}

// come has n waiters of c come.
func (w *crowd) come(ctx context.Context, c *locker.Client, n int) {
	for range n {
		w.all.Go(func() {
			if err := w.visit(ctx, c); err != nil {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.errs = append(w.errs, err)
			}
		})
	}
}

func (w *crowd) visit(ctx context.Context, c *locker.Client) error {
	h, err := c.Mutex(contested).Acquire(ctx)
	if err != nil {
		return err
	}
	assert.EqualValues(w.t, 1, w.inside.Add(1), "how many hold the lock")
	w.mu.Lock()
	assert.Greater(w.t, h.Token(), w.token)
	w.token = h.Token()
	w.mu.Unlock()
	w.inside.Add(-1)
	w.served.Add(1)
	return h.Unlock(context.WithoutCancel(ctx))
}

// waitServed waits until all have had the lock, and none has failed.
func (w *crowd) waitServed() {
	w.t.Helper()
	w.all.Wait()
	require.Empty(w.t, w.errs)
}

var callsOf = regexp.MustCompile(`(?m)^cmdstat_(?:evalsha|eval|ping|subscribe|unsubscribe|script\|load):calls=(\d+)`)

// requests counts what clients have sent to a node, without what scripts do there.
func requests(t testing.TB, rdb *goredis.Client) (n int) {
	t.Helper()
	stats, err := rdb.Info(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	for _, m := range callsOf.FindAllStringSubmatch(stats, -1) {
		calls, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		n += calls
	}
	return n
}

// rates returns how many requests a second each node gets.
func (q *quorum) rates(t testing.TB, during time.Duration) (rates []float64) {
	t.Helper()
	before, start := make([]int, len(q.direct)), time.Now()
	for i, rdb := range q.direct {
		before[i] = requests(t, rdb)
	}
	time.Sleep(during)
	for i, rdb := range q.direct {
		rates = append(rates, float64(requests(t, rdb)-before[i])/time.Since(start).Seconds())
	}
	return rates
}

// held takes the lock at every node, so that all who come queue at every node, and a majority is left when two are gone.
func (q *quorum) held(t testing.TB, c *locker.Client) *locker.Hold {
	t.Helper()
	h, err := c.Mutex(contested).Acquire(t.Context())
	require.NoError(t, err)
	eventually(t, "all nodes have granted the lock", func() bool {
		if slices.Equal(q.heldAt(t, contested), all(len(q.servers), true)) {
			return true
		}
		require.NoError(t, h.Extend(t.Context()), "which has those join that were late")
		return false
	})
	return h
}

func TestWait_idleWaitersOfAClientCostANodeOneRequestASecond(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 5)
	h := q.held(t, unhurriedClient(t, q.addrs()))
	w := &crowd{t: t}
	w.come(t.Context(), unhurriedClient(t, q.addrs()), 50)
	q.eventuallyQueueing(t, 50, 0, 1, 2, 3, 4)
	time.Sleep(2 * time.Second) // subscriptions are there
	rates := q.rates(t, 5*time.Second)
	t.Log("requests a second:", rates)
	for _, r := range rates {
		assert.Less(t, r, 1.5)
	}
	require.NoError(t, h.Unlock(t.Context()))
	w.waitServed()
	q.eventuallyQueueing(t, 0, 0, 1, 2, 3, 4)
	q.eventuallyFree(t, contested, 0, 1, 2, 3, 4)
}

func TestWait_aNodeThatComesBackEmptyIsNoStorm(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 5)
	h := q.held(t, unhurriedClient(t, q.addrs())) // renewed after 10 s
	eventually(t, "all have it", func() bool { return slices.Equal(q.heldAt(t, contested), all(5, true)) })
	require.NoError(t, h.Extend(t.Context()), "from which the others count, too")
	w := &crowd{t: t}
	w.come(t.Context(), unhurriedClient(t, q.addrs()), 5)
	w.come(t.Context(), unhurriedClient(t, q.addrs()), 5)
	q.eventuallyQueueing(t, 10, 0, 1, 2, 3, 4)
	require.NoError(t, q.direct[0].FlushAll(t.Context()).Err())
	rates := q.rates(t, 6*time.Second)
	t.Log("requests a second:", rates)
	for _, r := range rates {
		assert.Less(t, r, 40.0)
	}
	q.servers[1].Restart()
	time.Sleep(time.Second)
	require.NoError(t, h.Unlock(t.Context()))
	w.waitServed()
	q.eventuallyQueueing(t, 0, 0, 1, 2, 3, 4)
}

func TestWait_twoOfFiveHangOrDieAndComeBack(t *testing.T) {
	for name, c := range map[string]struct {
		fail, restore func(*testserver.RedisServer)
		opts          []testserver.RedisOption
	}{
		"stopped":                 {fail: (*testserver.RedisServer).Stop, restore: (*testserver.RedisServer).Continue},
		"killed":                  {fail: (*testserver.RedisServer).Kill, restore: (*testserver.RedisServer).Restart},
		"killed, with their data": {(*testserver.RedisServer).Kill, (*testserver.RedisServer).Restart, []testserver.RedisOption{testserver.RedisPersistent()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQuorum(t, 5, c.opts...)
			a, b := client(t, q.addrs()), client(t, q.addrs())
			h := q.held(t, a)
			w := &crowd{t: t}
			w.come(t.Context(), a, 10)
			w.come(t.Context(), b, 10)
			q.eventuallyQueueing(t, 20, 0, 1, 2, 3, 4)
			c.fail(q.servers[0])
			c.fail(q.servers[1])
			w.come(t.Context(), a, 5)
			w.come(t.Context(), b, 5)
			q.eventuallyQueueing(t, 30, 2, 3, 4)
			start := time.Now()
			require.NoError(t, h.Unlock(t.Context()))
			eventually(t, "half have been served", func() bool { return w.served.Load() >= 15 })
			t.Log("15 took", time.Since(start))
			c.restore(q.servers[0])
			c.restore(q.servers[1])
			w.waitServed()
			t.Log("30 took", time.Since(start))
			q.eventuallyQueueing(t, 0, 0, 1, 2, 3, 4)
			q.eventuallyFree(t, contested, 0, 1, 2, 3, 4)
		})
	}
}

// A majority that hangs for a moment, while waiters wait, costs that moment.
func TestWait_aMajorityThatHangsForAMomentIsRiddenOut(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	a, b := client(t, q.addrs()), client(t, q.addrs())
	h := q.held(t, a)
	w := &crowd{t: t}
	w.come(t.Context(), a, 10)
	w.come(t.Context(), b, 10)
	q.eventuallyQueueing(t, 20, 0, 1, 2)
	q.servers[0].Stop()
	q.servers[1].Stop()
	time.Sleep(3 * time.Second)
	q.servers[0].Continue()
	q.servers[1].Continue()
	require.NoError(t, h.Unlock(t.Context()))
	w.waitServed()
	q.eventuallyQueueing(t, 0, 0, 1, 2)
}

// All learn of an outage, and not one after the other.
func TestWait_aMajorityThatHangsEndsAllWaits(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	q := newQuorum(t, 3)
	holder := client(t, q.addrs())
	h := q.held(t, holder)
	c := client(t, q.addrs(), locker.WithTTL(ttl))
	w := &crowd{t: t}
	w.come(t.Context(), c, 20)
	q.eventuallyQueueing(t, 20, 0, 1, 2)
	q.servers[0].Stop()
	q.servers[1].Stop()
	start := time.Now()
	w.all.Wait()
	took := time.Since(start)
	t.Log("20 have ended after", took)
	assert.Less(t, took, 2*ttl)
	require.Len(t, w.errs, 20)
	for _, err := range w.errs {
		var e *redlock.Error
		require.ErrorAs(t, err, &e)
		require.NotErrorIs(t, err, locker.ErrHeld)
	}
	q.servers[0].Continue()
	q.servers[1].Continue()
	require.NoError(t, h.Unlock(t.Context()))
	q.eventuallyQueueing(t, 0, 0, 1, 2)
	q.eventuallyFree(t, contested, 0, 1, 2)
}

// Waiters that end leave nothing: their context has, or the Client is closed.
func TestWait_thatEndsLeavesNoPlace(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 5)
	h := q.held(t, unhurriedClient(t, q.addrs()))
	c := unhurriedClient(t, q.addrs())
	w := &crowd{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	w.come(ctx, c, 20)
	q.eventuallyQueueing(t, 20, 0, 1, 2, 3, 4)
	cancel()
	w.all.Wait()
	for _, err := range w.errs {
		require.ErrorIs(t, err, context.Canceled)
	}
	q.eventuallyQueueing(t, 0, 0, 1, 2, 3, 4)

	closed := &crowd{t: t}
	closed.come(t.Context(), c, 20)
	q.eventuallyQueueing(t, 20, 0, 1, 2, 3, 4)
	require.NoError(t, c.Close())
	closed.all.Wait()
	for _, err := range closed.errs {
		require.ErrorIs(t, err, locker.ErrClosed)
	}
	q.eventuallyQueueing(t, 0, 0, 1, 2, 3, 4)
	for i, rdb := range q.direct {
		eventually(t, fmt.Sprintf("node %d: one subscription at most, of the other client", i), func() bool {
			list, err := rdb.ClientList(t.Context()).Result()
			return err == nil && strings.Count(list, "flags=P") <= 1
		})
	}
	require.NoError(t, h.Unlock(t.Context()))
}

func TestWait_twoHundredOfAClientAreAllServed(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 5)
	c := unhurriedClient(t, q.addrs())
	h := q.held(t, c)
	w := &crowd{t: t}
	w.come(t.Context(), c, 200)
	q.eventuallyQueueing(t, 200, 0, 1, 2, 3, 4)
	start := time.Now()
	require.NoError(t, h.Unlock(t.Context()))
	w.waitServed()
	t.Log("200 took", time.Since(start))
	q.eventuallyQueueing(t, 0, 0, 1, 2, 3, 4)
	q.eventuallyFree(t, contested, 0, 1, 2, 3, 4)
}

// A user without the right to channels: waiters poll.
func TestWait_withoutSubscriptionsWaitersPoll(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, testserver.RedisConfig("user mute on >secret ~* resetchannels +@all"))
	mute := func(o *goredis.Options) {
		heedingCtx(o)
		o.Username, o.Password = "mute", "secret"
	}
	open := func() *locker.Client {
		c, err := locker.New(driverOver(t, q.addrs(), mute, redlock.NodeTimeout(2*time.Second)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b := open(), open()
	h := q.held(t, a)
	w := &crowd{t: t}
	w.come(t.Context(), a, 10)
	w.come(t.Context(), b, 10)
	time.Sleep(time.Second)
	rates := q.rates(t, 2*time.Second)
	t.Log("requests a second:", rates)
	start := time.Now()
	require.NoError(t, h.Unlock(t.Context()))
	w.waitServed()
	t.Log("20 took", time.Since(start))
	q.eventuallyQueueing(t, 0, 0, 1, 2)
}

// Replies are lost, and connections break, while two clients hand the lock over.
func TestWait_repliesAreLostWhileTheLockIsHandedOver(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 5)
	addrs, network := q.proxied(t)
	w := &crowd{t: t}
	w.come(t.Context(), client(t, addrs), 40)
	w.come(t.Context(), client(t, q.addrs()), 40)
	done := make(chan struct{})
	go func() { defer close(done); w.all.Wait() }()
	for i := 0; !isClosed(done); i++ {
		p := network[i%len(network)]
		p.DropReplies(true)
		time.Sleep(50 * time.Millisecond)
		p.DropReplies(false)
		p.ResetConns()
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Log(w.served.Load(), "served; errors:", w.errs)
	for _, err := range w.errs {
		require.ErrorIs(t, err, locker.ErrLost, "an Unlock that is in doubt")
	}
	q.eventuallyQueueing(t, 0, 0, 1, 2, 3, 4)
	q.eventuallyFree(t, contested, 0, 1, 2, 3, 4)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
