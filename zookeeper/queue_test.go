package zookeeper_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/testserver"
	"github.com/go-locker/locker/zookeeper"
)

func TestSession_endsUnderTheHolder(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	for name, heard := range map[string]bool{"the events are ours": true, "they are the application's": false} {
		t.Run(name, func(t *testing.T) {
			conn, events := connect(t, 10*time.Second, s.Addr())
			if !heard {
				events = nil
			}
			c := clientOf(t, conn, events, locker.WithoutRenewal())
			a, b := c.Mutex("a"), c.Mutex("b")
			require.NoError(t, a.Lock(t.Context()))
			require.NoError(t, b.Lock(t.Context()))
			deadline := a.Deadline()
			s.EndSession(conn.SessionID())
			for _, m := range []*locker.Mutex{a, b} {
				select {
				case <-m.Lost():
				case <-time.After(patient):
					t.Fatal("not lost")
				}
			}
			assert.True(t, time.Now().Before(deadline), "the news comes before the deadline")
			require.ErrorIs(t, a.Extend(t.Context()), locker.ErrLost)
			require.ErrorIs(t, a.Unlock(t.Context()), locker.ErrLost)
			require.ErrorIs(t, b.Unlock(t.Context()), locker.ErrLost)
			require.NoError(t, a.Lock(t.Context()), "on a new session")
			assert.NoError(t, a.Unlock(t.Context()))
		})
	}
}

// The node alone is removed: the next Extend finds out, though the session is in the best of health.
func TestNode_removedUnderTheHolder(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	look := direct(t, s.Addr())
	c := openURL(t, s.URL(), "ttl=10s", locker.WithoutRenewal())
	for name, end := range map[string]func(*locker.Mutex, context.Context) error{
		"Extend": (*locker.Mutex).Extend, "Unlock": (*locker.Mutex).Unlock,
	} {
		m, next := c.Mutex(name), c.Mutex(name)
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, look.Delete(queue(t, look, name)[0], -1))
		require.NoError(t, next.TryLock(t.Context()))
		require.ErrorIs(t, end(m, t.Context()), locker.ErrLost, name)
		assert.Positive(t, next.FencingToken())
		assert.NoError(t, next.Unlock(t.Context()), "the other's hold is untouched")
	}
}

func TestSession_endsUnderAWaiter_takesItToTheEndOfTheQueue(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	look := direct(t, s.Addr())
	holder := openURL(t, s.URL(), "ttl=10s").Mutex("x")
	require.NoError(t, holder.Lock(t.Context()))
	conn, events := connect(t, 10*time.Second, s.Addr())
	waiter := clientOf(t, conn, events).Mutex("x")
	waiting := async(func() error { return waiter.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue(t, look, "x")) == 2 })
	first := queue(t, look, "x")[1]
	s.EndSession(conn.SessionID())
	eventually(t, "it waits again", func() bool {
		all := queue(t, look, "x")
		return len(all) == 2 && all[1] != first
	})
	assert.Zero(t, waiter.FencingToken())
	require.NoError(t, holder.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	assert.NoError(t, waiter.Unlock(t.Context()))
}

// The session of a waiter ends, and in the same moment its turn comes: its Lock does not succeed on the dead one.
func TestSession_endsUnderAWaiterWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	look := direct(t, s.Addr())
	holder := openURL(t, s.URL(), "ttl=10s").Mutex("x")
	conn, events := connect(t, 10*time.Second, s.Addr())
	waiters := clientOf(t, conn, events)
	for range 2 {
		require.NoError(t, holder.Lock(t.Context()))
		waiter := waiters.Mutex("x")
		waiting := async(func() error { return waiter.Lock(t.Context()) })
		eventually(t, "it waits", func() bool { return len(queue(t, look, "x")) == 2 })
		all := queue(t, look, "x")
		dead := sessionOf(t, look, all[1])
		s.EndSession(conn.SessionID())
		require.NoError(t, look.Delete(all[0], -1))
		require.NoError(t, await(t, waiting))
		now := queue(t, look, "x")
		require.Len(t, now, 1)
		assert.NotEqual(t, dead, sessionOf(t, look, now[0]), "it came again")
		require.NoError(t, waiter.Extend(t.Context()))
		require.NoError(t, waiter.Unlock(t.Context()))
		require.ErrorIs(t, holder.Unlock(t.Context()), locker.ErrLost)
	}
}

// Every other one of a queue gives up. The others get the lock in the order in which they came.
func TestQueue_whoGivesUpInTheMiddleLeavesItIntact(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	look := direct(t, s.Addr())
	c := openURL(t, s.URL(), "ttl=10s") // of one session
	holder := c.Mutex("x")
	require.NoError(t, holder.Lock(t.Context()))
	const n = 12
	var (
		mu     sync.Mutex
		order  []int
		tokens []uint64
		wg     sync.WaitGroup
	)
	leave := make([]context.CancelFunc, n)
	for i := range n {
		ctx, cancel := context.WithCancel(t.Context())
		leave[i] = cancel
		m := c.Mutex("x")
		if i%3 == 0 {
			m = c.Mutex("x", locker.WithTTL(20*time.Second))
		}
		wg.Go(func() {
			if m.Lock(ctx) != nil {
				return
			}
			mu.Lock()
			order, tokens = append(order, i), append(tokens, m.FencingToken())
			mu.Unlock()
			assert.NoError(t, m.Unlock(context.WithoutCancel(ctx)))
		})
		eventually(t, "it stands in the queue", func() bool { return len(queue(t, look, "x")) == i+2 })
	}
	for i := 0; i < n; i += 2 {
		leave[i]()
	}
	eventually(t, "they have left", func() bool { return len(queue(t, look, "x")) == 1+n/2 })
	require.NoError(t, holder.Unlock(t.Context()))
	wg.Wait()
	assert.Equal(t, []int{1, 3, 5, 7, 9, 11}, order)
	assert.IsIncreasing(t, tokens)
	for _, cancel := range leave {
		cancel()
	}
	assert.Empty(t, queue(t, look, "x"))
}

func TestMutexes_ofOneConnectionContend(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	look := direct(t, s.Addr())
	c := openURL(t, s.URL(), "ttl=10s")
	a, b, long := c.Mutex("x"), c.Mutex("x"), c.Mutex("x", locker.WithTTL(20*time.Second))
	require.NoError(t, a.Lock(t.Context()))
	require.ErrorIs(t, b.TryLock(t.Context()), locker.ErrHeld)
	require.ErrorIs(t, long.TryLock(t.Context()), locker.ErrHeld)
	require.Len(t, queue(t, look, "x"), 1, "TryLock has left nothing behind")
	require.NoError(t, a.Unlock(t.Context()))
	require.NoError(t, long.TryLock(t.Context()))
	assert.Greater(t, time.Until(long.Deadline()), 10*time.Second, "it has the lifetime of its own session")
	require.ErrorIs(t, a.TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, long.Unlock(t.Context()))

	conn, events := connect(t, 10*time.Second, s.Addr())
	one, two := clientOf(t, conn, events), clientOf(t, conn, nil)
	m, n := one.Mutex("x"), two.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	require.ErrorIs(t, n.TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, n.TryLock(t.Context()))
	require.NoError(t, n.Unlock(t.Context()))
}

// A hold lapses while its session is kept alive, by us: the lock is free, and the session goes on.
func TestHold_thatLapsesLeavesItsSession(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	look := direct(t, s.Addr())
	conn, events := connect(t, 3*time.Second, s.Addr())
	for name, c := range map[string]*locker.Client{
		"own":         openURL(t, s.URL(), "ttl=3s", locker.WithoutRenewal()),
		"application": clientOf(t, conn, events, locker.WithoutRenewal()),
	} {
		m := c.Mutex(name)
		require.NoError(t, m.Lock(t.Context()))
		session := sessionOf(t, look, queue(t, look, name)[0])
		<-m.Lost()
		eventually(t, "the node is gone", func() bool { return len(queue(t, look, name)) == 0 })
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, session, sessionOf(t, look, queue(t, look, name)[0]))
		require.NoError(t, m.Unlock(t.Context()))
	}
}

func TestForeignNodes_doNoHarm(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	look := direct(t, s.Addr())
	c := openURL(t, s.URL(), "ttl=10s")
	for name, take := range map[string]func(*locker.Mutex, context.Context) error{
		"Lock": (*locker.Mutex).Lock, "TryLock": (*locker.Mutex).TryLock,
	} {
		first := c.Mutex(name) // the parent is there
		require.NoError(t, first.Lock(t.Context()))
		put := func(child string, flags int32) {
			_, err := look.Create(parent(name)+"/"+child, nil, flags, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		put("note", 0)
		put("0000000000", 0)
		put("lock-", zk.FlagEphemeralSequential)
		put("read-", zk.FlagSequence)
		require.NoError(t, first.Unlock(t.Context()))
		m, next := c.Mutex(name), c.Mutex(name)
		require.NoError(t, take(m, withTimeout(t, patient)))
		put("later", 0)
		require.ErrorIs(t, next.TryLock(t.Context()), locker.ErrHeld)
		waiting := async(func() error { return next.Lock(t.Context()) })
		eventually(t, "it waits", func() bool { return len(queue(t, look, name)) == 7 })
		put("at last", 0)
		require.NoError(t, m.Extend(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, await(t, waiting))
		require.NoError(t, next.Unlock(t.Context()))
		assert.Len(t, queue(t, look, name), 6, "theirs, untouched")
	}
}

func TestMetadata_isTheData(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	look := direct(t, s.Addr())
	m := openURL(t, s.URL(), "ttl=10s", locker.WithMetadata("host 7")).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	data, _, err := look.Get(queue(t, look, "x")[0])
	require.NoError(t, err)
	assert.Equal(t, "host 7", string(data))
	_, stat, err := look.Get(parent("x"))
	require.NoError(t, err)
	assert.EqualValues(t, stat.Pzxid, m.FencingToken())
	require.NoError(t, m.Unlock(t.Context()))
}

// Many holds of one session are extended together, also more than one request takes.
func TestExtendAll(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	look := direct(t, s.Addr())
	conn, events := connect(t, 10*time.Second, s.Addr())
	d, err := zookeeper.NewDriver(conn, events, zookeeper.Tick(serverTick))
	require.NoError(t, err)
	defer func() { _ = d.Close() }()
	const n = 230
	all := make([]locker.Lease, n)
	for i := range all {
		l, err := d.Acquire(t.Context(), locker.Request{Name: fmt.Sprint("locker:x", i), TTL: 10 * time.Second})
		require.NoError(t, err)
		all[i] = l
	}
	for _, i := range []int{150, 151, 199} {
		require.NoError(t, look.Delete(queue(t, look, fmt.Sprint("x", i))[0], -1))
	}
	require.NoError(t, all[7].Release(t.Context()))
	for i, err := range d.ExtendAll(t.Context(), all, 10*time.Second) {
		switch i {
		case 7, 150, 151, 199:
			require.ErrorIs(t, err, locker.ErrLost, i)
		default:
			require.NoError(t, err, i)
		}
	}
	for i, l := range all {
		if err := l.Release(t.Context()); i == 150 {
			require.ErrorIs(t, err, locker.ErrLost)
		}
	}
}

// The servers remove empty containers, and the next number begins anew. Tokens do not.
func TestContainers_areReapedAndTokensRise(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	look := direct(t, s.Addr())
	m := openURL(t, s.URL(), "ttl=10s").Mutex("x")
	last := uint64(0)
	for range 3 {
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, "0000000000", number(queue(t, look, "x")[0]))
		assert.Greater(t, m.FencingToken(), last)
		last = m.FencingToken()
		require.NoError(t, m.Unlock(t.Context()))
		eventually(t, "nothing is left at all", func() bool {
			found, _, err := look.Exists("/locker")
			require.NoError(t, err)
			return !found
		})
	}
}
