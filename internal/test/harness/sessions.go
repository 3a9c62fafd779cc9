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
	"github.com/go-locker/locker/internal/test/testwait"
)

// Sessions is a backend on which a lock is a queue of entries, each on a session that all holds of a
// Client share.
type Sessions struct {
	Addr   string // of a server
	Prefix string // of its locks

	Open   func(t testing.TB, ttl time.Duration, opts ...locker.Option) *locker.Client // with connections of its own
	Driver func(t testing.TB, addr string) claims.Driver                               // with a session of its own, there or by a proxy

	Queue     func(t testing.TB, name string) []string // the entries of a lock, in order
	SessionOf func(t testing.TB, entry string) int64   // which an entry is on
	End       func(t testing.TB, session int64)        // behind the back of its Client
	Remove    func(t testing.TB, entry string)         // its session goes on
	Put       func(t testing.TB, name, entry string)   // what is no contender's, into a queue
}

// Run tests what becomes of holders and waiters whose sessions end, or whose entries are removed, and
// what shares add: the conformance suite has what is promised of each backend.
func (b Sessions) Run(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"an entry is removed under its holder":       b.removedUnderTheHolder,
		"a session ends under a waiter":              b.endsUnderAWaiter,
		"a session ends under a waiter in its turn":  b.endsUnderAWaiterWhoseTurnItIs,
		"a session ends that nobody uses":            b.endsUnused,
		"entries that are no contender's do no harm": b.ignoresForeignEntries,
		"many are extended together":                 b.extendsAll,
		"a Downgrade beside other calls":             b.downgradesMeanwhile,
		"a share that is ended by force":             b.endsShareByForce,
	} {
		t.Run(name, test)
	}
}

// queued waits until n stand in the queue of a lock.
func (b Sessions) queued(t testing.TB, name string, n int) {
	t.Helper()
	patience.Until(t, fmt.Sprint("in the queue there are ", n), func() bool { return len(b.Queue(t, name)) == n })
}

// removedUnderTheHolder is what a watch tells, and the next Extend or Unlock finds out, though the
// session is in the best of health.
func (b Sessions) removedUnderTheHolder(t *testing.T) {
	c := b.Open(t, longTTL, locker.WithoutRenewal())
	watched := c.Mutex("watched")
	require.NoError(t, watched.Lock(t.Context()))
	deadline := watched.Hold().Deadline()
	b.Remove(t, b.Queue(t, "watched")[0])
	require.NoError(t, patience.Result(t, async(func() error { <-watched.Hold().Lost(); return nil })), "it is lost")
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
	holder, waiter := b.Open(t, longTTL).Mutex("x"), b.Open(t, longTTL).Mutex("x")
	for _, end := range []func(entry string){
		func(entry string) { b.End(t, b.SessionOf(t, entry)) }, func(entry string) { b.Remove(t, entry) },
	} {
		require.NoError(t, holder.Lock(t.Context()))
		waiting := async(func() error { return waiter.Lock(t.Context()) })
		b.queued(t, "x", 2)
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
	holder, waiter := b.Open(t, longTTL).Mutex("x"), b.Open(t, longTTL).Mutex("x")
	for range 5 {
		require.NoError(t, holder.Lock(t.Context()))
		waiting := async(func() error { return waiter.Lock(t.Context()) })
		b.queued(t, "x", 2)
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
		m := b.Open(t, ttl).Mutex(name)
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
	c := b.Open(t, longTTL)
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
			b.queued(t, name, n+1)
			return waiting
		}
		require.NoError(t, take(m, testwait.Context(t, patient)))
		put(foreign[3])
		require.ErrorIs(t, next.TryLock(t.Context()), locker.ErrHeld)
		b.queued(t, name, 5) // of the TryLock nothing is left
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

// request is of a name of b's, in full.
func (b Sessions) request(name string) driver.Request {
	return driver.Request{Name: b.Prefix + ":" + name, TTL: longTTL}
}

// extendsAll, also more than one request takes, and says of each what has become of it.
func (b Sessions) extendsAll(t *testing.T) {
	const n = 230
	d := b.Driver(t, b.Addr)
	all := make([]driver.Claim, n)
	var acquiring sync.WaitGroup
	for i := range all {
		acquiring.Go(func() {
			l, err := claims.Take(t.Context(), d, b.request(fmt.Sprint("x", i)))
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
	for i, err := range d.ExtendAll(t.Context(), all, longTTL) {
		switch i {
		case 7, 150, 151, 199:
			require.ErrorIs(t, err, locker.ErrLost, i)
		default:
			require.NoError(t, err, i)
		}
	}
	require.ErrorIs(t, all[150].Release(t.Context()), locker.ErrLost)
}

// downgradesMeanwhile has holders downgrade while they are extended, and while they are released: a
// Downgrade changes what they are known by.
func (b Sessions) downgradesMeanwhile(t *testing.T) {
	d, req := b.Driver(t, b.Addr), b.request("downgraded")
	downgrade := func() (l driver.Claim, done <-chan error) {
		l, err := claims.Take(t.Context(), d, req)
		require.NoError(t, err)
		return l, async(func() error { return l.(driver.Downgrader).Downgrade(t.Context()) })
	}
	for range 20 {
		l, done := downgrade()
		for range 3 {
			require.NoError(t, l.Extend(t.Context(), longTTL), "nobody has ended it")
		}
		require.NoError(t, <-done)
		require.NoError(t, l.Extend(t.Context(), longTTL))
		require.NoError(t, l.Release(t.Context()))

		l, done = downgrade()
		require.NoError(t, l.Release(t.Context()))
		if err := <-done; err != nil {
			require.ErrorIs(t, err, driver.ErrLost)
		}
		require.Empty(t, b.Queue(t, "downgraded"), "it was released")
	}
}

// endsShareByForce, and neither another nor a waiter. [Inspect] has those that were shown end together.
func (b Sessions) endsShareByForce(t *testing.T) {
	d, other, c := b.Driver(t, b.Addr), b.Driver(t, b.Addr), b.Open(t, longTTL)
	share := func(d driver.Driver) driver.Claim {
		l, err := claims.Share(t.Context(), d, b.request("forced"))
		require.NoError(t, err)
		return l
	}
	stays, ends := share(d), share(other)
	writer := c.Mutex("forced")
	waiting := async(func() error { return writer.Lock(t.Context()) })
	b.queued(t, "forced", 3)
	state, err := other.Inspect(t.Context(), b.request("forced").Name)
	require.NoError(t, err)
	require.Len(t, state.Shares, 2)
	require.Len(t, state.Waiters, 1)
	force := func(p driver.Participant, token uint64) error {
		return d.ForceRelease(t.Context(), b.request("forced").Name, driver.State{Held: true, Holder: p, Token: token})
	}
	require.ErrorIs(t, force(state.Waiters[0], 0), driver.ErrHeld, "a waiter")
	require.NoError(t, force(state.Shares[1], state.Token))
	require.ErrorIs(t, ends.Extend(t.Context(), longTTL), driver.ErrLost)
	require.ErrorIs(t, ends.Release(t.Context()), driver.ErrLost)
	require.NoError(t, stays.Extend(t.Context(), longTTL))
	assert.Empty(t, waiting, "there is a share")
	require.NoError(t, stays.Release(t.Context()))
	require.NoError(t, patience.Result(t, waiting))
	require.NoError(t, writer.Unlock(t.Context()))
}
