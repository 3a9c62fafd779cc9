package redlock_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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

// held takes the lock at every node, so that all who come queue at every node, and a majority is
// left when two are gone.
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

// A user without the right to channels: waiters poll. One that comes before its client knows that
// has its turn, too, while others come and go.
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
	known, fresh := open(), open()
	h := q.held(t, known)
	w := &crowd{t: t}
	w.come(t.Context(), known, 5)
	q.eventuallyQueueing(t, 5, 0, 1, 2)
	time.Sleep(time.Second) // all that waits has been told that there are no subscriptions
	served := &crowd{t: t}
	served.come(t.Context(), fresh, 5)
	q.eventuallyQueueing(t, 10, 0, 1, 2)
	require.NoError(t, h.Unlock(t.Context()))
	over, others := make(chan struct{}), &crowd{t: t}
	for range 3 {
		others.all.Go(func() {
			for !isClosed(over) {
				assert.NoError(t, others.visit(t.Context(), known))
			}
		})
	}
	eventually(t, "those of the client that did not know have been served", func() bool { return served.served.Load() == 5 })
	t.Log(others.served.Load(), "others were served meanwhile")
	close(over)
	others.all.Wait()
	w.waitServed()
	served.waitServed()
	q.eventuallyQueueing(t, 0, 0, 1, 2)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
