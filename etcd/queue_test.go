package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/testserver"
)

func TestSession_revokedUnderTheHolder(t *testing.T) {
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	c := newClient(t, s.Addr(), locker.WithTTL(3*time.Second), locker.WithoutRenewal())
	a, b := c.Mutex("a"), c.Mutex("b")
	require.NoError(t, a.Lock(t.Context()))
	require.NoError(t, b.Lock(t.Context()))
	deadline := a.Deadline()
	_, err := direct.Revoke(t.Context(), leaseOf(t, direct, queue(t, direct, "a")[0]))
	require.NoError(t, err)
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
}

// The key alone is removed: the next Extend finds out, though the session is in the best of health.
func TestKey_removedUnderTheHolder(t *testing.T) {
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	c := newClient(t, s.Addr(), locker.WithTTL(10*time.Second), locker.WithoutRenewal())
	for name, end := range map[string]func(*locker.Mutex, context.Context) error{
		"Extend": (*locker.Mutex).Extend, "Unlock": (*locker.Mutex).Unlock,
	} {
		m, next := c.Mutex(name), c.Mutex(name)
		require.NoError(t, m.Lock(t.Context()))
		_, err := direct.Delete(t.Context(), queue(t, direct, name)[0])
		require.NoError(t, err)
		require.NoError(t, next.TryLock(t.Context()))
		require.ErrorIs(t, end(m, t.Context()), locker.ErrLost, name)
		assert.Positive(t, next.FencingToken())
		assert.NoError(t, next.Unlock(t.Context()), "the other's hold is untouched")
	}
}

func TestSession_revokedUnderAWaiter_takesItToTheEndOfTheQueue(t *testing.T) {
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	holder := newClient(t, s.Addr(), locker.WithTTL(10*time.Second)).Mutex("x")
	require.NoError(t, holder.Lock(t.Context()))
	waiter := newClient(t, s.Addr(), locker.WithTTL(10*time.Second)).Mutex("x")
	waiting := async(func() error { return waiter.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue(t, direct, "x")) == 2 })
	first := queue(t, direct, "x")[1]
	_, err := direct.Revoke(t.Context(), leaseOf(t, direct, first))
	require.NoError(t, err)
	eventually(t, "it waits again", func() bool {
		all := queue(t, direct, "x")
		return len(all) == 2 && all[1] != first
	})
	assert.Zero(t, waiter.FencingToken())
	require.NoError(t, holder.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	assert.NoError(t, waiter.Unlock(t.Context()))
}

// The session of a waiter ends, and in the same moment its turn comes: its Lock does not succeed on the dead one.
func TestSession_revokedUnderAWaiterWhoseTurnItIs(t *testing.T) {
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	holder := newClient(t, s.Addr(), locker.WithTTL(10*time.Second)).Mutex("x")
	waiters := newClient(t, s.Addr(), locker.WithTTL(10*time.Second))
	for range 5 {
		require.NoError(t, holder.Lock(t.Context()))
		waiter := waiters.Mutex("x")
		waiting := async(func() error { return waiter.Lock(t.Context()) })
		eventually(t, "it waits", func() bool { return len(queue(t, direct, "x")) == 2 })
		all := queue(t, direct, "x")
		_, err := direct.Revoke(t.Context(), leaseOf(t, direct, all[1]))
		require.NoError(t, err)
		_, err = direct.Delete(t.Context(), all[0])
		require.NoError(t, err)
		require.NoError(t, await(t, waiting))
		now := queue(t, direct, "x")
		require.Len(t, now, 1)
		assert.NotEqual(t, all[1], now[0], "it came again")
		require.NoError(t, waiter.Extend(t.Context()))
		require.NoError(t, waiter.Unlock(t.Context()))
		require.ErrorIs(t, holder.Unlock(t.Context()), locker.ErrLost)
	}
}

// Every other one of a queue gives up. The others get the lock in the order in which they came.
func TestQueue_whoGivesUpInTheMiddleLeavesItIntact(t *testing.T) {
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	c := newClient(t, s.Addr(), locker.WithTTL(10*time.Second)) // of one session
	other := newClient(t, s.Addr(), locker.WithTTL(20*time.Second))
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
		from := c
		if i%3 == 0 {
			from = other
		}
		wg.Go(func() {
			m := from.Mutex("x")
			if m.Lock(ctx) != nil {
				return
			}
			mu.Lock()
			order, tokens = append(order, i), append(tokens, m.FencingToken())
			mu.Unlock()
			assert.NoError(t, m.Unlock(context.WithoutCancel(ctx)))
		})
		eventually(t, "it stands in the queue", func() bool { return len(queue(t, direct, "x")) == i+2 })
	}
	for i := 0; i < n; i += 2 {
		leave[i]()
	}
	eventually(t, "they have left", func() bool { return len(queue(t, direct, "x")) == 1+n/2 })
	require.NoError(t, holder.Unlock(t.Context()))
	wg.Wait()
	assert.Equal(t, []int{1, 3, 5, 7, 9, 11}, order)
	assert.IsIncreasing(t, tokens)
	for _, cancel := range leave {
		cancel()
	}
	assert.Empty(t, queue(t, direct, "x"))
}

func TestMutexes_ofOneSessionContend(t *testing.T) {
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	c := newClient(t, s.Addr(), locker.WithTTL(10*time.Second))
	a, b, long := c.Mutex("x"), c.Mutex("x"), c.Mutex("x", locker.WithTTL(20*time.Second))
	require.NoError(t, a.Lock(t.Context()))
	require.ErrorIs(t, b.TryLock(t.Context()), locker.ErrHeld)
	require.ErrorIs(t, long.TryLock(t.Context()), locker.ErrHeld)
	require.Len(t, keys(t, direct, ""), 1, "TryLock has left nothing behind, be it a mark")
	require.NoError(t, a.Unlock(t.Context()))
	require.NoError(t, long.TryLock(t.Context()))
	assert.Greater(t, time.Until(long.Deadline()), 10*time.Second, "it has the lifetime of its own session")
	require.ErrorIs(t, a.TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, long.Unlock(t.Context()))
	assert.Len(t, leases(t, direct), 2, "a session each for the two lifetimes")
}

// A hold lapses while its session is kept alive, by us: the lock is free, and the session goes on.
func TestHold_thatLapsesLeavesItsSession(t *testing.T) {
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	c := newClient(t, s.Addr(), locker.WithTTL(time.Second), locker.WithoutRenewal())
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	session := leaseOf(t, direct, queue(t, direct, "x")[0])
	<-m.Lost()
	eventually(t, "the key is gone", func() bool { return len(queue(t, direct, "x")) == 0 })
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
	require.NoError(t, m.Lock(t.Context()))
	assert.Equal(t, session, leaseOf(t, direct, queue(t, direct, "x")[0]))
}

func TestForeignKeys_doNoHarm(t *testing.T) {
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	put := func(name, key string) {
		_, err := direct.Put(t.Context(), folder(name)+key, "not ours")
		require.NoError(t, err)
	}
	c := newClient(t, s.Addr(), locker.WithTTL(10*time.Second))
	for name, take := range map[string]func(*locker.Mutex, context.Context) error{
		"Lock": (*locker.Mutex).Lock, "TryLock": (*locker.Mutex).TryLock,
	} {
		put(name, "")
		put(name, "note")
		put(name, "0123456789abcdef0123456789abcdef") // without a lease
		m, next := c.Mutex(name), c.Mutex(name)
		require.NoError(t, take(m, withTimeout(t, patient)))
		put(name, "later")
		require.ErrorIs(t, next.TryLock(t.Context()), locker.ErrHeld)
		eventually(t, "of the TryLock nothing is left", func() bool { return len(queue(t, direct, name)) == 5 })
		waiting := async(func() error { return next.Lock(t.Context()) })
		eventually(t, "it waits", func() bool { return len(queue(t, direct, name)) == 6 })
		put(name, "at last")
		require.NoError(t, m.Extend(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, await(t, waiting))
		require.NoError(t, next.Unlock(t.Context()))
		assert.Len(t, queue(t, direct, name), 5, "theirs, untouched")
	}
}

// What has been compacted away can be watched no more, and has to be looked for.
func TestCompaction_whileWaiting(t *testing.T) {
	f := newFaulty(t, 10*time.Second)
	holder := f.other.Mutex("x")
	require.NoError(t, holder.Lock(t.Context()))
	waiter := f.client.Mutex("x")
	waiting := async(func() error { return waiter.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue(t, f.direct, "x")) == 2 })
	f.proxy.Sever()
	require.NoError(t, holder.Unlock(t.Context()))
	resp, err := f.direct.Put(t.Context(), "k", "v")
	require.NoError(t, err)
	_, err = f.direct.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	f.proxy.Restore()
	require.NoError(t, await(t, waiting))
	assert.NoError(t, waiter.Unlock(t.Context()))
}

func TestMetadata_isTheValue(t *testing.T) {
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	m := newClient(t, s.Addr(), locker.WithMetadata("host 7")).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	resp, err := direct.Get(t.Context(), queue(t, direct, "x")[0])
	require.NoError(t, err)
	assert.Equal(t, "host 7", string(resp.Kvs[0].Value))
	assert.EqualValues(t, m.FencingToken(), resp.Kvs[0].CreateRevision)
}

// Many holds of one session are extended together, also more than one request takes.
func TestExtendAll(t *testing.T) {
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	d := driverOf(t, connect(t, s.Addr()))
	const n = 230
	all := make([]locker.Lease, n)
	for i := range all {
		l, err := d.Acquire(t.Context(), locker.Request{Name: fmt.Sprint("locker:x", i), TTL: 10 * time.Second})
		require.NoError(t, err)
		all[i] = l
	}
	_, err := direct.Delete(t.Context(), queue(t, direct, "x150")[0])
	require.NoError(t, err)
	require.NoError(t, all[7].Release(t.Context()))
	for i, err := range d.ExtendAll(t.Context(), all, 10*time.Second) {
		if i == 7 || i == 150 {
			require.ErrorIs(t, err, locker.ErrLost, i)
		} else {
			require.NoError(t, err, i)
		}
	}
}
