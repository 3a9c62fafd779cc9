package harness

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Sessions is a backend on which a lock is a queue of entries, each on a session that all holds of a Client share. Its
// methods are tests.
type Sessions struct {
	Addr string // of a server

	// Open makes a Client with connections of its own, to addr.
	Open func(t testing.TB, addr string, ttl time.Duration, opts ...locker.Option) *locker.Client

	Queue     func(t testing.TB, name string) []string // the entries of a lock, in order
	SessionOf func(t testing.TB, entry string) int64   // which an entry is on
	End       func(t testing.TB, session int64)        // behind the back of its Client
	Remove    func(t testing.TB, entry string)         // its session goes on
}

func (b Sessions) open(t testing.TB, ttl time.Duration, opts ...locker.Option) *locker.Client {
	t.Helper()
	return b.Open(t, b.Addr, ttl, opts...)
}

// queued waits until n stand in the queue of x.
func (b Sessions) queued(t testing.TB, n int) {
	t.Helper()
	patience.Until(t, fmt.Sprint("in the queue there are ", n), func() bool { return len(b.Queue(t, "x")) == n })
}

// EndsUnderTheHolder has all holds of a session lost at once.
func (b Sessions) EndsUnderTheHolder(t *testing.T) {
	c := b.open(t, 10*time.Second, locker.WithoutRenewal())
	x, y := c.Mutex("x"), c.Mutex("y")
	require.NoError(t, x.Lock(t.Context()))
	require.NoError(t, y.Lock(t.Context()))
	deadline := x.Deadline()
	b.End(t, b.SessionOf(t, b.Queue(t, "x")[0]))
	for _, m := range []*locker.Mutex{x, y} {
		wantLost(t, m)
	}
	assert.True(t, time.Now().Before(deadline), "the news comes before the deadline")
	require.ErrorIs(t, x.Extend(t.Context()), locker.ErrLost)
	require.ErrorIs(t, x.Unlock(t.Context()), locker.ErrLost)
	require.ErrorIs(t, y.Unlock(t.Context()), locker.ErrLost)
	require.NoError(t, x.Lock(t.Context()), "on a new session")
	assert.NoError(t, x.Unlock(t.Context()))
}

func wantLost(t testing.TB, m *locker.Mutex) {
	t.Helper()
	select {
	case <-m.Lost():
	case <-time.After(patient):
		t.Fatal("not lost")
	}
}

// RemovedUnderTheHolder is what a watch tells, and the next Extend or Unlock finds out, though the
// session is in the best of health.
func (b Sessions) RemovedUnderTheHolder(t *testing.T) {
	c := b.open(t, longTTL, locker.WithoutRenewal())
	watched := c.Mutex("watched")
	require.NoError(t, watched.Lock(t.Context()))
	deadline := watched.Deadline()
	b.Remove(t, b.Queue(t, "watched")[0])
	wantLost(t, watched)
	assert.True(t, time.Now().Before(deadline), "nobody has asked")
	require.ErrorIs(t, watched.Unlock(t.Context()), locker.ErrLost)
	for name, end := range map[string]func(*locker.Mutex, context.Context) error{
		"Extend": (*locker.Mutex).Extend, "Unlock": (*locker.Mutex).Unlock,
	} {
		m, next := c.Mutex(name), c.Mutex(name)
		require.NoError(t, m.Lock(t.Context()))
		b.Remove(t, b.Queue(t, name)[0])
		require.NoError(t, next.TryLock(t.Context()))
		require.ErrorIs(t, end(m, t.Context()), locker.ErrLost, name)
		assert.Positive(t, next.FencingToken())
		assert.NoError(t, next.Unlock(t.Context()), "the other's hold is untouched")
	}
}

// EndsUnderAWaiter takes it to the end of the queue. So does an operator who removes its entry, and
// nothing else.
func (b Sessions) EndsUnderAWaiter(t *testing.T) {
	holder, waiter := b.open(t, longTTL).Mutex("x"), b.open(t, longTTL).Mutex("x")
	for _, end := range []func(entry string){
		func(entry string) { b.End(t, b.SessionOf(t, entry)) }, func(entry string) { b.Remove(t, entry) },
	} {
		require.NoError(t, holder.Lock(t.Context()))
		waiting := async(func() error { return waiter.Lock(t.Context()) })
		b.queued(t, 2)
		first := b.Queue(t, "x")[1]
		end(first)
		patience.Until(t, "it waits again", func() bool {
			all := b.Queue(t, "x")
			return len(all) == 2 && all[1] != first
		})
		assert.Zero(t, waiter.FencingToken())
		require.NoError(t, holder.Unlock(t.Context()))
		require.NoError(t, patience.Result(t, waiting))
		require.NoError(t, waiter.Unlock(t.Context()))
	}
}

// EndsUnderAWaiterWhoseTurnItIs has a session end and its waiter's turn come at once: Lock does not succeed on the dead session.
func (b Sessions) EndsUnderAWaiterWhoseTurnItIs(t *testing.T) {
	holder, waiter := b.open(t, longTTL).Mutex("x"), b.open(t, longTTL).Mutex("x")
	for range 5 {
		require.NoError(t, holder.Lock(t.Context()))
		waiting := async(func() error { return waiter.Lock(t.Context()) })
		b.queued(t, 2)
		before := b.Queue(t, "x")
		dead := b.SessionOf(t, before[1])
		b.End(t, dead)
		b.Remove(t, before[0])
		require.NoError(t, patience.Result(t, waiting))
		now := b.Queue(t, "x")
		require.Len(t, now, 1)
		assert.NotEqual(t, before[1], now[0], "it came again")
		assert.NotEqual(t, dead, b.SessionOf(t, now[0]))
		require.NoError(t, waiter.Extend(t.Context()))
		require.NoError(t, waiter.Unlock(t.Context()))
		require.ErrorIs(t, holder.Unlock(t.Context()), locker.ErrLost)
	}
}

// ExtendsAll that d is given together, also more than one request takes, and says of each what has
// become of it. prefix is that of b's locks.
func (b Sessions) ExtendsAll(t *testing.T, d interface {
	driver.Driver
	driver.BatchExtender
}, ttl time.Duration, prefix string,
) {
	const n = 230
	all := make([]driver.Lease, n)
	var acquiring sync.WaitGroup
	for i := range all {
		acquiring.Go(func() {
			l, err := claims.Take(t.Context(), d, driver.Request{Name: fmt.Sprint(prefix, ":x", i), TTL: ttl})
			assert.NoError(t, err)
			all[i] = l
		})
	}
	acquiring.Wait()
	require.False(t, t.Failed())
	for _, i := range []int{150, 151, 199} {
		b.Remove(t, b.Queue(t, fmt.Sprint("x", i))[0])
	}
	require.NoError(t, all[7].Release(t.Context()))
	for i, err := range d.ExtendAll(t.Context(), all, ttl) {
		switch i {
		case 7, 150, 151, 199:
			require.ErrorIs(t, err, locker.ErrLost, i)
		default:
			require.NoError(t, err, i)
		}
	}
	require.ErrorIs(t, all[150].Release(t.Context()), locker.ErrLost)
}

// faulty is a Client behind a proxy, and one at the server itself.
func (b Sessions) faulty(t *testing.T) (proxy *testserver.Proxy, client, other *locker.Client) {
	t.Helper()
	const ttl = longTTL
	proxy = testserver.NewProxy(t, b.Addr)
	client, other = b.Open(t, proxy.Addr(), ttl, locker.WithoutRenewal()), b.open(t, ttl, locker.WithoutRenewal())
	warm := client.Mutex("x") // there are a connection, a session, and what the queue stands in
	require.NoError(t, warm.Lock(t.Context()))
	require.NoError(t, warm.Unlock(t.Context()))
	return proxy, client, other
}

// UnlockUnanswered is a success.
func (b Sessions) UnlockUnanswered(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, other *locker.Mutex){
		"nobody came":   func(*testing.T, *locker.Mutex) {},
		"another holds": func(t *testing.T, other *locker.Mutex) { require.NoError(t, other.TryLock(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			proxy, client, others := b.faulty(t)
			m, other := client.Mutex("x"), others.Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			proxy.DropReplies(true)
			done := async(func() error { return m.Unlock(t.Context()) })
			b.queued(t, 0) // the server has released
			proxy.DropReplies(false)
			between(t, other)
			proxy.ResetConns()
			require.NoError(t, patience.Result(t, done))
			if other.FencingToken() > 0 {
				assert.NoError(t, other.Unlock(t.Context()), "the other's hold is untouched")
			}
		})
	}
}
