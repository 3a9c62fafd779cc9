package zookeeper

import (
	"context"
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
	"github.com/go-locker/locker/internal/test/claims"
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
	holder, err := claims.Take(t.Context(), d, req)
	require.NoError(t, err)
	nodes := func() int {
		children, _, err := conn.Children(parentOf("", req.Name))
		require.True(t, err == nil || errors.Is(err, zk.ErrNoNode), "%v", err)
		return len(children)
	}
	contender := func() *claim {
		req.Wake = func() {}
		c := d.Claim(req).(*claim)
		require.NoError(t, c.join(t.Context()))
		return c
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
			claim, c := contender(), &creation{done: make(chan struct{})}
			l := claim.lease
			l.making = c
			released := make(chan error, 1)
			go func() { released <- claim.Release(t.Context()) }()
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
		l := contender().lease
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
		require.NoError(t, l.release(t.Context()))
	})
	t.Run("on a session that came after", func(t *testing.T) {
		l, c := contender().lease, &creation{done: make(chan struct{}), err: zk.ErrConnectionClosed}
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

// An event may be lost. Who asks again looks at the node before its own, and at its own.
func TestAsk_doesNotRelyOnEvents(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	conn := connAt(t, ttl, testserver.SharedZooKeeper(t).Addr())
	d := driverOn(t, conn)
	req := driver.Request{Name: fresh(), TTL: ttl}
	first, err := claims.Take(t.Context(), d, req)
	require.NoError(t, err)
	req.Wake = func() {}
	second := d.Claim(req).(*claim)
	ask := func() error {
		next, err := second.Ask(t.Context())
		require.LessOrEqual(t, next, 7*time.Second)
		return err
	}
	require.ErrorIs(t, ask(), driver.ErrHeld)
	l := second.lease
	l.session.mu.Lock()
	l.session.watches[l.awaits].events = make(chan zk.Event) // which hears nothing
	l.session.mu.Unlock()
	require.ErrorIs(t, ask(), driver.ErrHeld)
	assert.Same(t, l, second.lease)
	require.NoError(t, conn.Delete(l.at(), -1))
	require.ErrorIs(t, ask(), driver.ErrHeld)
	assert.NotSame(t, l, second.lease, "it has begun again")
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, ask())
	token := second.Token()
	third := d.Claim(req)
	_, err = third.Ask(t.Context())
	require.ErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, ask(), "asked twice it is granted once")
	assert.Equal(t, token, second.Token())
	require.NoError(t, second.Release(t.Context()))
	require.NoError(t, third.Release(t.Context()))
}

// A try came second, between its look and its node. Its deletion is not answered, and goes on in
// the background.
func TestAsk_ofATryThatComesSecond(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	conn := connAt(t, ttl, testserver.SharedZooKeeper(t).Addr())
	d := driverOn(t, conn)
	req := driver.Request{Name: fresh(), TTL: ttl}
	c := d.Claim(req).(*claim)
	require.NoError(t, c.Release(t.Context()), "it has sent nothing")
	require.NoError(t, c.join(t.Context()), "it is free")
	l := c.lease
	holder, err := claims.Take(t.Context(), d, req)
	require.NoError(t, err)
	before, err := l.stand(t.Context())
	require.NoError(t, err)
	require.Equal(t, holder.(*claim).lease.at(), l.parent+"/"+before)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.leaveHeld(ctx), driver.ErrHeld)
	waitFor(t, "it has left", l.lost)
	children, _, err := conn.Children(l.parent)
	require.NoError(t, err)
	assert.Len(t, children, 1)
	require.NoError(t, holder.Release(t.Context()))
}

// Others may change the node before ours: then its watch has fired, and the node is there. The next
// to wait needs another watch.
func TestAwait_wakesEachOnce(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	conn := connAt(t, ttl, testserver.SharedZooKeeper(t).Addr())
	d := driverOn(t, conn)
	got, err := claims.Take(t.Context(), d, driver.Request{Name: fresh(), TTL: ttl})
	require.NoError(t, err)
	first, second := got.(*claim).lease, new(lease)
	next, err := claims.Take(t.Context(), d, driver.Request{Name: fresh(), TTL: ttl})
	require.NoError(t, err)
	s, node := first.session, first.at()
	events := func() <-chan zk.Event {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.watches[node].events
	}
	woken := make(chan *lease, 4)
	wait := func(l *lease) (gone bool) {
		gone, err := s.await(t.Context(), l, node, func() { woken <- l })
		require.NoError(t, err)
		return gone
	}
	require.False(t, wait(first))
	set := events()
	require.False(t, wait(second))
	require.Equal(t, set, events(), "the library would keep both")
	_, err = conn.Set(node, nil, -1)
	require.NoError(t, err)
	assert.ElementsMatch(t, []*lease{first, second}, []*lease{<-woken, <-woken})
	require.False(t, wait(second))
	require.NoError(t, got.Release(t.Context()))
	assert.Equal(t, second, <-woken)
	assert.True(t, wait(second))
	node = next.(*claim).lease.at()
	require.False(t, wait(second))
	s.End()
	assert.Equal(t, second, <-woken, "with the session")
	_, err = s.await(t.Context(), second, node, func() {})
	require.ErrorIs(t, err, errSessionEnded)
	s.wakeAll() // as Stop does
	assert.Empty(t, woken)
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Empty(t, s.watches, "nothing is left of them")
}

// A session that nobody has used for long: one of our own is closed, the application's goes on.
func TestSession_thatIdles(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	s := testserver.SharedZooKeeper(t)
	req := driver.Request{Name: fresh(), TTL: ttl}
	use := func(d *Driver) *session {
		l, err := claims.Take(t.Context(), d, req)
		require.NoError(t, err)
		require.Greater(t, l.Validity(), ttl/2)
		require.NoError(t, l.Release(t.Context()))
		return l.(*claim).lease.session
	}

	d := driverOn(t, connAt(t, ttl, s.Addr()))
	first := use(d)
	first.mu.Lock()
	first.life.proven = first.life.proven.Add(-ttl)
	first.mu.Unlock()
	assert.Same(t, first, use(d), "a quorum still knows it")
}
