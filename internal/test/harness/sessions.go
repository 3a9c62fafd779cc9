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
	"github.com/go-locker/locker/internal/test/testwait"
)

// Sessions is a backend on which a lock is a queue of entries, each on a session that all holds of a
// Client share. Its exported methods are tests.
type Sessions struct {
	Addr string // of a server

	// Open makes a Client with connections of its own, to addr.
	Open func(t testing.TB, addr string, ttl time.Duration, opts ...locker.Option) *locker.Client

	Queue     func(t testing.TB, name string) []string // the entries of a lock, in order
	SessionOf func(t testing.TB, entry string) int64   // which an entry is on
	End       func(t testing.TB, session int64)        // behind the back of its Client
	Remove    func(t testing.TB, entry string)         // its session goes on
	Put       func(t testing.TB, name, entry string)   // what is no contender's, into a queue
}

// Run tests what becomes of holders and waiters whose sessions end, or whose entries are removed.
func (b Sessions) Run(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a session ends under its holders":           b.endsUnderTheHolder,
		"an entry is removed under its holder":       b.removedUnderTheHolder,
		"a session ends under a waiter":              b.endsUnderAWaiter,
		"a session ends under a waiter in its turn":  b.endsUnderAWaiterWhoseTurnItIs,
		"a session ends that nobody uses":            b.endsUnused,
		"the reply to an Unlock is lost":             b.unlockUnanswered,
		"entries that are no contender's do no harm": b.ignoresForeignEntries,
	} {
		t.Run(name, test)
	}
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

// endsUnderTheHolder has all holds of a session lost at once.
func (b Sessions) endsUnderTheHolder(t *testing.T) {
	c := b.open(t, 10*time.Second, locker.WithoutRenewal())
	x, y := c.Mutex("x"), c.Mutex("y")
	require.NoError(t, x.Lock(t.Context()))
	require.NoError(t, y.Lock(t.Context()))
	deadline := x.Hold().Deadline()
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
	case <-m.Hold().Lost():
	case <-time.After(patient):
		t.Fatal("not lost")
	}
}

// removedUnderTheHolder is what a watch tells, and the next Extend or Unlock finds out, though the
// session is in the best of health.
func (b Sessions) removedUnderTheHolder(t *testing.T) {
	c := b.open(t, longTTL, locker.WithoutRenewal())
	watched := c.Mutex("watched")
	require.NoError(t, watched.Lock(t.Context()))
	deadline := watched.Hold().Deadline()
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

// endsUnderAWaiter takes it to the end of the queue. So does an operator who removes its entry, and
// nothing else.
func (b Sessions) endsUnderAWaiter(t *testing.T) {
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

// endsUnderAWaiterWhoseTurnItIs has a session end and its waiter's turn come at once: Lock does not
// succeed on the dead session.
func (b Sessions) endsUnderAWaiterWhoseTurnItIs(t *testing.T) {
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

// endsUnused does not keep the next Lock, or TryLock, waiting for a renewal that finds it out.
func (b Sessions) endsUnused(t *testing.T) {
	const ttl = time.Minute
	for name, take := range takes {
		name = "unused " + name
		m := b.open(t, ttl).Mutex(name)
		require.NoError(t, m.Lock(t.Context()))
		session := b.SessionOf(t, b.Queue(t, name)[0])
		require.NoError(t, m.Unlock(t.Context()))
		b.End(t, session)
		require.NoError(t, take(m, testwait.Context(t, ttl/3)), name)
		assert.NotEqual(t, session, b.SessionOf(t, b.Queue(t, name)[0]))
		assert.NoError(t, m.Unlock(t.Context()))
	}
}

var takes = map[string]func(*locker.Mutex, context.Context) error{
	"Lock": (*locker.Mutex).Lock, "TryLock": (*locker.Mutex).TryLock,
}

// ignoresForeignEntries takes, waits, shows and shares a lock among entries of others.
func (b Sessions) ignoresForeignEntries(t *testing.T) {
	c := b.open(t, longTTL)
	for name, take := range takes {
		m, next := c.Mutex(name), c.Mutex(name)
		require.NoError(t, m.Lock(t.Context()), "what the queue stands in is there")
		foreign := []string{"note", "0123456789abcdef0123456789abcdef", "lock-0000000000", "later", "at last"}
		put := func(some ...string) {
			for _, entry := range some {
				b.Put(t, name, entry)
			}
		}
		put(foreign[:3]...)
		require.NoError(t, m.Unlock(t.Context()))
		state, err := c.Inspect(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, locker.State{}, state)
		waits := func(n int) <-chan error {
			waiting := async(func() error { return next.Lock(t.Context()) })
			patience.Until(t, "it waits", func() bool { return len(b.Queue(t, name)) == n+1 })
			return waiting
		}
		require.NoError(t, take(m, testwait.Context(t, patient)))
		put(foreign[3])
		require.ErrorIs(t, next.TryLock(t.Context()), locker.ErrHeld)
		patience.Until(t, "of the TryLock nothing is left", func() bool { return len(b.Queue(t, name)) == 5 })
		waiting := waits(5)
		put(foreign[4])
		state, err = c.Inspect(t.Context(), name)
		require.NoError(t, err)
		assert.Len(t, state.Waiters, 1)
		require.NoError(t, m.Extend(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, patience.Result(t, waiting))
		require.NoError(t, next.Unlock(t.Context()))

		x, y := c.RWMutex(name), c.RWMutex(name)
		require.NoError(t, x.TryRLock(t.Context()))
		require.NoError(t, y.TryRLock(t.Context()))
		assert.Equal(t, x.FencingToken(), y.FencingToken())
		waiting = waits(7)
		require.ErrorIs(t, c.RWMutex(name).TryRLock(t.Context()), locker.ErrHeld)
		require.NoError(t, x.Unlock(t.Context()))
		require.NoError(t, y.Unlock(t.Context()))
		require.NoError(t, patience.Result(t, waiting))
		require.NoError(t, next.Unlock(t.Context()))
		assert.Len(t, b.Queue(t, name), len(foreign), "theirs, untouched")
	}
}

// Wanted has the holder m ask whether somebody waits, which costs one read of the queue, and one more
// when waiter comes. reads counts them.
func Wanted(t *testing.T, m, waiter *locker.Mutex, reads func() int) {
	require.NoError(t, m.Lock(t.Context()))
	before := reads()
	wanted := m.Hold().Wanted()
	patience.Until(t, "it has read the queue, and watches", func() bool { return reads() == before+1 })
	select {
	case <-wanted:
		t.Fatal("nobody waits")
	case <-time.After(50 * time.Millisecond):
	}
	waiting := async(func() error { return waiter.Lock(t.Context()) })
	require.NoError(t, patience.Result(t, async(func() error { <-wanted; return nil })))
	assert.Equal(t, before+2, reads())
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, patience.Result(t, waiting))
	require.NoError(t, waiter.Unlock(t.Context()))
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

// unlockUnanswered is a success.
func (b Sessions) unlockUnanswered(t *testing.T) {
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
