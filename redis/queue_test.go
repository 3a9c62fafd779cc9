package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// queueTest is one lock at one server, and who waits for it.
type queueTest struct {
	t      *testing.T
	direct *goredis.Client // no fault comes between it and the server
	name   string
}

func newQueueTest(t *testing.T, direct *goredis.Client) *queueTest {
	t.Helper()
	return &queueTest{t: t, direct: direct, name: "shared"}
}

func (r *queueTest) queueKey() string { return keyOf(r.name) + ":queue" }

// queued is who waits, in order.
func (r *queueTest) queued() []string {
	return r.direct.ZRange(context.Background(), r.queueKey(), 0, -1).Val()
}

func (r *queueTest) length() int { return len(r.queued()) }

func (r *queueTest) owner() string {
	return r.direct.HGet(context.Background(), keyOf(r.name), "owner").Val()
}

// work is what is done under the lock: it fails if another is at it, or if the token has not risen.
func work(ctx context.Context, rdb goredis.UniversalClient, token uint64) error {
	inside, err := rdb.Incr(ctx, "inside").Result()
	if err != nil {
		return err
	}
	last, err := rdb.GetSet(ctx, "last", token).Uint64()
	if err != nil && err != goredis.Nil { //nolint:errorlint // it is never wrapped
		return err
	}
	if inside != 1 || last >= token {
		return fmt.Errorf("%d at work at once, token %d after %d", inside, token, last)
	}
	return rdb.Decr(ctx, "inside").Err()
}

// serve waits for the lock, works, and gives it back.
func (r *queueTest) serve(ctx context.Context, c *locker.Client) error {
	m := c.Mutex(r.name)
	if err := m.Lock(ctx); err != nil {
		return err
	}
	if err := work(context.WithoutCancel(ctx), r.direct, m.FencingToken()); err != nil {
		return err
	}
	return m.Unlock(context.WithoutCancel(ctx))
}

// join has one more wait, and returns when it is in the queue.
func (r *queueTest) join(ctx context.Context, c *locker.Client, id int) <-chan error {
	r.t.Helper()
	before := r.length()
	done := async(func() error { return r.serve(ctx, c) })
	eventually(r.t, fmt.Sprintf("waiter %d is in the queue", id), func() bool { return r.length() > before })
	return done
}

// joinAll has n wait, of each of the clients in turn.
func (r *queueTest) joinAll(ctx context.Context, n int, clients ...*locker.Client) []<-chan error {
	r.t.Helper()
	var all []<-chan error
	for id := range n {
		all = append(all, r.join(ctx, clients[id%len(clients)], id))
	}
	return all
}

// subscribed waits until n processes are subscribed to the channels of the lock.
func (r *queueTest) subscribed(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d are subscribed", n), func() bool { return len(r.subscribers()) == n })
}

func (r *queueTest) subscribers() []string {
	return r.direct.PubSubChannels(context.Background(), "*"+r.name+"*").Val()
}

// wantServed fails unless all return nil.
func wantServed(t *testing.T, all []<-chan error) {
	t.Helper()
	for id, done := range all {
		require.NoError(t, await(t, done), "waiter %d of %d", id, len(all))
	}
}

// wantEmpty fails unless the queue is gone, the lock free, and free for anyone.
func (r *queueTest) wantEmpty() {
	r.t.Helper()
	eventually(r.t, "nobody waits, holds or is claimed for", func() bool { return r.length() == 0 && r.owner() == "" })
	m := clientOf(r.t, r.direct).Mutex(r.name)
	require.NoError(r.t, m.TryLock(r.t.Context()))
	require.NoError(r.t, work(r.t.Context(), r.direct, m.FencingToken()))
	require.NoError(r.t, m.Unlock(r.t.Context()))
}

// hold takes the lock and returns what gives it back.
func (r *queueTest) hold(c *locker.Client) (unlock func()) {
	r.t.Helper()
	m := c.Mutex(r.name)
	require.NoError(r.t, m.Lock(r.t.Context()))
	return func() {
		r.t.Helper()
		require.NoError(r.t, m.Unlock(r.t.Context()))
	}
}

// newClients makes n Clients that share no connection.
func newClients(t *testing.T, addr string, n int) []*locker.Client {
	t.Helper()
	var all []*locker.Client
	for range n {
		all = append(all, newClient(t, addr))
	}
	return all
}

// Counts of one client's waiters, and of the server's commands: never times.
func TestQueue_idleWaitersCostOneLookASecond(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newQueueTest(t, connect(t, s.Addr()))
	unlock := r.hold(newClient(t, s.Addr()))
	all := r.joinAll(t.Context(), 100, newClients(t, s.Addr(), 1)...)
	r.subscribed(1)
	start := time.Now()
	resetStats(t, r.direct)
	time.Sleep(3 * time.Second)
	scripts := scriptsRun(t, r.direct)
	assert.LessOrEqual(t, scripts, int(time.Since(start)/time.Second)+2, "one more when the subscription stands")
	assert.Positive(t, scripts, "somebody looks")
	unlock()
	wantServed(t, all)
	r.wantEmpty()
}

func TestQueue_twoHundredLocksAreHeardOnOneConnection(t *testing.T) {
	t.Parallel()
	const n = 200
	s := testserver.Redis(t)
	direct := connect(t, s.Addr())
	holder, c := newClient(t, s.Addr()), newClient(t, s.Addr())
	var all []<-chan error
	var unlocks []func()
	for i := range n {
		r := newQueueTest(t, direct)
		r.name = "shared" + strconv.Itoa(i)
		unlocks = append(unlocks, r.hold(holder))
		m := c.Mutex(r.name)
		all = append(all, async(func() error { return m.Lock(t.Context()) }))
	}
	eventually(t, "all are listened to", func() bool {
		return len(direct.PubSubChannels(t.Context(), "*").Val()) == n
	})
	list, err := direct.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(list, "id="), "%s", list)
	for _, unlock := range unlocks {
		unlock()
	}
	wantServed(t, all)
}
