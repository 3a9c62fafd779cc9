package zookeeper

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/test/testserver"
)

func connAt(t *testing.T, timeout time.Duration, addr string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{addr}, timeout, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events {
		}
	})
	return conn
}

// locks counts the names of all tests in this package, which have one server in common.
var locks atomic.Int64

// fresh returns the qualified name of a lock that no other test has.
func fresh() string { return fmt.Sprint("fresh:x", locks.Add(1)) }

func driverOn(t *testing.T, conn *zk.Conn) *Driver {
	t.Helper()
	d, err := NewDriver(conn, nil, Tick(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("still not true: " + what)
		}
	}
}

// What a clean-up is for, step by step: the library sends a take when its caller has long given up, and, on the
// application's connection, when the session is another.
func TestTake_thatComesAfterItsRelease(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	conn := connAt(t, ttl, testserver.SharedZooKeeper(t).Addr())
	d := driverOn(t, conn)
	req := driver.Request{Name: fresh(), TTL: ttl}
	holder, err := d.Acquire(t.Context(), req)
	require.NoError(t, err)
	nodes := func() int {
		children, _, err := conn.Children(parentOf("", req.Name))
		require.True(t, err == nil || errors.Is(err, zk.ErrNoNode), "%v", err)
		return len(children)
	}
	contender := func() *lease {
		l, err := d.contend(t.Context(), req, d.outage(ttl, unheard))
		require.NoError(t, err)
		return l
	}
	for name, comes := range map[string]func(l *lease, c *creation){
		"it was made": func(l *lease, c *creation) {
			c.path, c.err = conn.Create(l.node, nil, zk.FlagEphemeralSequential, d.acl)
			require.NoError(t, c.err)
		},
		"it was made, and we did not hear": func(l *lease, c *creation) {
			_, err := conn.Create(l.node, nil, zk.FlagEphemeralSequential, d.acl)
			require.NoError(t, err)
			c.err = zk.ErrConnectionClosed
		},
		"it was not made, and we did not hear": func(_ *lease, c *creation) { c.err = zk.ErrConnectionClosed },
		"it was refused":                       func(_ *lease, c *creation) { c.err = zk.ErrNoAuth },
	} {
		t.Run(name, func(t *testing.T) {
			l, c := contender(), &creation{done: make(chan struct{})}
			l.making = c
			lease, err := l.outcome(errNoAnswer)
			require.ErrorIs(t, err, errNoAnswer)
			require.NotNil(t, lease, "something may come")
			released := make(chan error, 1)
			go func() { released <- l.Release(t.Context()) }()
			select {
			case err := <-released:
				t.Fatalf("Release says %v while the take is still in the library", err)
			case <-time.After(20 * time.Millisecond):
			}
			comes(l, c)
			c.id = conn.SessionID()
			close(c.done)
			require.NoError(t, <-released)
			assert.Equal(t, 1, nodes(), "the holder's alone")
		})
	}
	t.Run("looking for it proves nothing", func(t *testing.T) {
		l := contender()
		waitFor(t, "there is a contact that may be proven", func() bool {
			l.session.mu.Lock()
			defer l.session.mu.Unlock()
			return l.session.life.ripe(clock.Now()).After(l.session.life.proven)
		})
		before := l.session.life.until()
		path, err := l.find(t.Context(), &creation{id: conn.SessionID()})
		require.NoError(t, err)
		assert.Empty(t, path)
		assert.Equal(t, before, l.session.life.until())
		require.NoError(t, l.Release(t.Context()))
	})
	t.Run("on a session that came after", func(t *testing.T) {
		l, c := contender(), &creation{done: make(chan struct{}), err: zk.ErrConnectionClosed}
		l.making = c
		l.session.End()
		_, err := conn.Create(l.node, nil, zk.FlagEphemeralSequential, d.acl)
		require.NoError(t, err)
		require.Positive(t, nodes(), "the holder's may be gone already")
		c.id = conn.SessionID() + 1
		close(c.done)
		waitFor(t, "the session that has ended sweeps up, the holder's too", func() bool { return nodes() == 0 })
	})
	require.ErrorIs(t, holder.Extend(t.Context(), ttl), locker.ErrLost)
}

// An event may be lost. Who waits looks at the node before its own now and then, and at its own.
func TestAwaitDeparture_doesNotRelyOnEvents(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	conn := connAt(t, ttl, testserver.SharedZooKeeper(t).Addr())
	d := driverOn(t, conn)
	req, o := driver.Request{Name: fresh(), TTL: ttl}, d.outage(ttl, unheard)
	come := func() (l *lease, before string) {
		l, err := d.contend(t.Context(), req, o)
		require.NoError(t, err)
		before, err = l.enter(t.Context(), o)
		require.NoError(t, err)
		return l, l.parent + "/" + before
	}
	first, _ := come()
	second, before := come()
	require.Equal(t, first.at(), before)
	second.session.keepWatch(before, make(chan zk.Event)) // which hears nothing
	gone, err := second.awaitDeparture(t.Context(), o, before)
	require.NoError(t, err)
	assert.False(t, gone)
	require.NoError(t, first.Release(t.Context()))
	gone, err = second.awaitDeparture(t.Context(), o, before)
	require.NoError(t, err)
	assert.True(t, gone)
	require.NoError(t, conn.Delete(second.at(), -1))
	_, err = second.awaitDeparture(t.Context(), o, before)
	require.ErrorIs(t, err, errRemoved)
}

// Others may change the node before ours: then its watch has fired, and the node is there. The next to wait needs another watch.
func TestWatch_thatHasFiredIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	conn := connAt(t, ttl, testserver.SharedZooKeeper(t).Addr())
	l, err := driverOn(t, conn).Acquire(t.Context(), driver.Request{Name: fresh(), TTL: ttl})
	require.NoError(t, err)
	s, node := l.(*lease).session, l.(*lease).at()
	first, err := s.watch(t.Context(), node)
	require.NoError(t, err)
	same, err := s.watch(t.Context(), node)
	require.NoError(t, err)
	require.Equal(t, first, same, "the library would keep both")
	_, err = conn.Set(node, nil, -1)
	require.NoError(t, err)
	for range first {
	}
	second, err := s.watch(t.Context(), node)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.NoError(t, l.Release(t.Context()))
	<-second
	gone, err := s.watch(t.Context(), node)
	require.NoError(t, err)
	assert.Nil(t, gone)
}

// A session that nobody has used for long: one of our own is closed, the application's goes on.
func TestSession_thatIdles(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	s := testserver.SharedZooKeeper(t)
	req := driver.Request{Name: fresh(), TTL: ttl}
	use := func(d *Driver) *session {
		l, err := d.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.Greater(t, l.Validity(), ttl/2)
		require.NoError(t, l.Release(t.Context()))
		return l.(*lease).session
	}

	d := driverOn(t, connAt(t, ttl, s.Addr()))
	first := use(d)
	first.mu.Lock()
	first.life.proven = first.life.proven.Add(-ttl)
	first.mu.Unlock()
	assert.Same(t, first, use(d), "a quorum still knows it")
}
