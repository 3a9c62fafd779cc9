package redlock_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redlock"
)

// warm leaves connections, so that the next request to a majority is the one to take the lock: the
// reply to Unlock has come from a majority.
func (q *quorum) warm(t *testing.T, m *locker.Mutex) {
	t.Helper()
	q.takeAll(t, m)
	require.NoError(t, m.Unlock(t.Context()))
	q.eventuallyFree(t, contested, nodeA, nodeB, nodeC, nodeD, nodeE)
}

func count(held []bool) int {
	n := 0
	for _, h := range held {
		if h {
			n++
		}
	}
	return n
}

// antirez: time that is lost before the majority is counted is noticed, whatever it was lost by.
// True: a majority has granted the lock, its replies are held back, and the client believes nothing
// of them. What it took it gives back when they come, long before it would expire.
func TestAntirez_repliesThatAreHeldBackGrantNothing(t *testing.T) {
	t.Parallel()
	q := five(t)
	addrs, network := q.proxied(t)
	m := contender(t, addrs, long, redlock.NodeTimeout(2*time.Second))
	q.warm(t, m)
	for _, p := range network {
		p.HoldReplies(true)
	}
	tried := make(chan error, 1)
	go func() { tried <- m.TryLock(t.Context()) }()
	eventually(t, "a majority has granted the lock", func() bool { return count(q.heldAt(t, contested)) >= 3 })
	requireNoMajority(t, <-tried) // the client was not told in time
	assert.Zero(t, m.FencingToken())
	for _, p := range network {
		p.ReleaseReplies()
	}
	q.eventuallyFree(t, contested, nodeA, nodeB, nodeC, nodeD, nodeE)
	take(t, contender(t, q.addrs(), long))
}

// lag makes replies late, once it is set.
type lag struct{ atomic.Int64 }

func (l *lag) dial(o *goredis.Options) {
	heedingCtx(o)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return lateConn{conn, l}, err
	}
}

type lateConn struct {
	net.Conn
	lag *lag
}

func (c lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(time.Duration(c.lag.Load()))
	return n, err
}

// lagging is a contender with a slow way back from all nodes.
func lagging(t *testing.T, q *quorum, timeout, by time.Duration) *locker.Mutex {
	t.Helper()
	var l lag
	c, err := locker.New(driverOver(t, q.addrs(), l.dial, redlock.NodeTimeout(timeout)), locker.WithTTL(long), locker.WithoutRenewal())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	m := c.Mutex(contested)
	q.warm(t, m)
	l.Store(int64(by))
	return m
}

// antirez: a lock whose validity is used up by the taking counts as not taken, and is given back
// everywhere. True, and it does not come to that: a time-out under which a take could use up half
// of the TTL is refused, and nodes that are slower than theirs do not count.
func TestAntirez_aTakeSlowerThanItsValidityIsNone(t *testing.T) {
	testwait.OnlyNightly(t, "TestCheckTTL, and TestFaults_heedlessMajorityHangs in virtual time, show its parts")
	t.Parallel()
	q := five(t)
	_, err := locker.New(driverOver(t, q.addrs(), heedingCtx, redlock.NodeTimeout(long/4)), locker.WithTTL(long))
	require.ErrorIs(t, err, locker.ErrUnsupported)

	m := lagging(t, q, 400*time.Millisecond, 700*time.Millisecond)
	for op, lock := range map[string]func(context.Context) error{"lock": m.Lock, "trylock": m.TryLock} {
		votes := requireNoMajority(t, lock(t.Context()))
		for _, v := range votes {
			require.Error(t, v.Err, "%s: %s", op, v.Node)
		}
		assert.Zero(t, m.FencingToken())
	}
	q.eventuallyFree(t, contested, nodeA, nodeB, nodeC, nodeD, nodeE)
	take(t, contender(t, q.addrs(), long))
}

// antirez: a client that is cut off while it holds the lock makes the others wait for the TTL.
// True: for what is left of it, once, and no longer; and there is no moment at which two hold.
func TestAntirez_aHolderCutOffCostsTheOthersItsTTL(t *testing.T) {
	t.Parallel()
	q := five(t)
	addrs, network := q.proxied(t)
	first := contender(t, addrs, short)
	second := contender(t, q.addrs(), long)
	q.warm(t, second)
	older := q.takeAll(t, first)
	for _, p := range network {
		p.Sever()
	}
	cut, left := time.Now(), time.Until(first.Deadline())
	newer := take(t, second)
	waited := time.Since(cut)
	assert.Zero(t, first.FencingToken(), "two hold")
	assert.Greater(t, newer, older)
	assert.GreaterOrEqual(t, waited, left)
	assert.Less(t, waited, short+patient/2, "the wait has an end")
	require.ErrorIs(t, first.Unlock(t.Context()), locker.ErrLost)
	require.NoError(t, second.Unlock(t.Context()))
}

// antirez: who reaches a minority gets nothing, who reaches a majority goes on. True, and the first
// is told that the nodes are unreachable, not that another has the lock.
func TestAntirez_aPartitionStopsItsMinoritySideAlone(t *testing.T) {
	t.Parallel()
	q := five(t)
	minority := contender(t, q.reaching(t, nodeA, nodeB), long)
	majority := contender(t, q.reaching(t, nodeC, nodeD, nodeE), long)
	votes := requireNoMajority(t, minority.TryLock(t.Context()))
	for _, v := range votes[nodeC:] {
		require.Error(t, v.Err, v.Node)
	}
	q.eventuallyFree(t, contested, nodeA, nodeB)
	token := take(t, majority)
	require.Equal(t, []bool{false, false, true, true, true}, q.heldAt(t, contested))
	requireNoMajority(t, minority.TryLock(t.Context()))
	require.NoError(t, majority.Extend(t.Context()))
	assert.Equal(t, token, majority.FencingToken())
	require.NoError(t, majority.Unlock(t.Context()))
}
