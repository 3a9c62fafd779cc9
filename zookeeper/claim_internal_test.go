package zookeeper

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// Direct is a connection for tests to look at what there is.
func Direct(t testing.TB, addrs ...string) *zk.Conn {
	t.Helper()
	conn, end, err := Connect(addrs...)
	require.NoError(t, err)
	t.Cleanup(end)
	waitFor(t, "there is a session", func() bool { return conn.State() == zk.StateHasSession })
	return conn
}

// Connect is Direct, without a test.
func Connect(addrs ...string) (conn *zk.Conn, end func(), err error) {
	conn, events, err := zk.Connect(addrs, longTTL, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	return conn, func() {
		conn.Close()
		for range events {
		}
	}, err
}

// direct is Direct, to the server that the tests have in common.
func direct(t *testing.T) *zk.Conn { return Direct(t, testserver.SharedZooKeeper(t).Addr()) }

// driverOf is one over the server that the tests have in common.
func driverOf(t *testing.T, opts ...DriverOption) *backend {
	t.Helper()
	return testwait.Closed(NewDriver([]string{testserver.SharedZooKeeper(t).Addr()}, append(opts, Tick(100*time.Millisecond))...))(t).(*backend)
}

var waitFor = testwait.Patience(time.Minute).Until

const longTTL = 30 * time.Second

// take takes the lock of that name, for longTTL.
func take(t *testing.T, d *backend, name string) *claim {
	t.Helper()
	l, err := claims.Take(t.Context(), d, driver.Request{Name: name, TTL: longTTL})
	require.NoError(t, err)
	return l.(*claim)
}

// The read behind a create waits for a silent server for half of the session's TTL at most. Then
// Ask reads again.
func TestCreate_itsReadEndsBeforeTheSession(t *testing.T) {
	t.Parallel()
	server := testserver.ZooKeeper(t)
	d := testwait.Closed(NewDriver([]string{server.Addr()}))(t)
	c := d.Claim(driver.Request{Name: "x", TTL: 10 * time.Second}).(*claim)
	require.NoError(t, c.join(t.Context()))
	server.Stop()
	made, err := c.lease.create(t.Context())
	require.NoError(t, err)
	_, read := <-made.read
	assert.False(t, read)
	assert.False(t, c.lease.session.Ended(), "there is time for another read")
	server.Continue()
}

// What a clean-up is for, step by step: the library sends a take when its caller has long given up.
func TestTake_thatComesAfterItsRelease(t *testing.T) {
	t.Parallel()
	d, req := driverOf(t), driver.Request{Name: claims.Fresh(), TTL: longTTL}
	holder := take(t, d, req.Name)
	conn := holder.lease.session.conn
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
			return l.session.heartbeats.latestConfirmable(clock.Now()).After(l.session.heartbeats.confirmed)
		})
		before := l.session.heartbeats.expires()
		path, err := l.find(t.Context())
		require.NoError(t, err)
		assert.Empty(t, path)
		assert.Equal(t, before, l.session.heartbeats.expires())
		require.NoError(t, l.release(t.Context()))
	})
	require.NoError(t, holder.Release(t.Context()))
}

// An event may be lost. Who asks again looks at the node before its own, and at its own.
func TestAsk_doesNotRelyOnEvents(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	conn, d := direct(t), driverOf(t)
	req := driver.Request{Name: claims.Fresh(), TTL: ttl}
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
	require.ErrorIs(t, ask(), driver.ErrHeld)
	assert.Same(t, l, second.lease)
	require.NoError(t, conn.Delete(l.state().path, -1))
	require.ErrorIs(t, ask(), driver.ErrHeld)
	assert.NotSame(t, l, second.lease, "it has begun again")
	watches, node := &l.session.watches, second.lease.awaits.node
	set := func(w *watch) (was *watch) {
		watches.mu.Lock()
		defer watches.mu.Unlock()
		was, watches.nodes[node] = watches.nodes[node], w
		return was
	}
	was := set(nil)
	require.NoError(t, first.Release(t.Context()))
	set(was) // the event is lost
	require.NoError(t, ask())
	token := second.Token()
	third := d.Claim(req)
	_, err = third.Ask(t.Context())
	require.ErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, ask(), "asked twice it is granted once")
	assert.Equal(t, token, second.Token())
	require.NoError(t, third.Release(t.Context()))
	assert.Empty(t, watches.awaited(third.(*claim).lease), "nobody wakes it")
	require.NoError(t, second.Release(t.Context()))
}

// A try came second, between its read and its node, and what was to remove its node is not answered. It
// is not granted the lock by a node that may go at any time.
func TestAsk_ofATryThatComesSecond(t *testing.T) {
	t.Parallel()
	conn, d := direct(t), driverOf(t)
	req := driver.Request{Name: claims.Fresh(), TTL: longTTL}
	come := func() (c, holder *claim) {
		c = d.Claim(req).(*claim)
		require.NoError(t, c.Release(t.Context()), "it has sent nothing")
		require.NoError(t, c.join(t.Context()), "it is free")
		holder = take(t, d, req.Name)
		before, err := c.lease.predecessor(t.Context())
		require.NoError(t, err)
		require.Equal(t, holder.lease.state().path, c.lease.parent+"/"+before)
		return c, holder
	}
	c, holder := come()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.leave(ctx), context.Canceled)
	_, err := c.Ask(t.Context())
	require.ErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, c.Release(t.Context()), "nothing is left")
	children, _, err := conn.Children(holder.lease.parent)
	require.NoError(t, err)
	assert.Len(t, children, 1)
	require.NoError(t, holder.Release(t.Context()))

	c, holder = come()
	node := c.lease.state().path
	c.lease.deletes = 1 // as if that were still in flight
	require.NoError(t, holder.Release(t.Context()))
	_, err = c.Ask(t.Context())
	require.NoError(t, err)
	if err := conn.Delete(node, -1); err != nil {
		require.ErrorIs(t, err, zk.ErrNoNode)
	}
	require.NoError(t, c.Extend(t.Context(), req.TTL))
	require.NoError(t, c.Release(t.Context()))
}

// Others may change the node before ours: then its watch has fired, and the node is there. The next
// to wait needs another watch.
func TestAwait_wakesEachOnce(t *testing.T) {
	t.Parallel()
	conn, d := direct(t), driverOf(t)
	got, next := take(t, d, claims.Fresh()), take(t, d, claims.Fresh())
	first, second := got.lease, &lease{lock: got.lease.lock}
	s, node := first.session, first.state().path
	waiters := func() int {
		s.watches.mu.Lock()
		defer s.watches.mu.Unlock()
		assert.True(t, s.watches.nodes[node].set)
		return len(s.watches.nodes[node].wakes)
	}
	woken := make(chan *lease, 4)
	wait := func(l *lease) (gone bool) {
		gone, err := l.await(t.Context(), node, func() { woken <- l })
		require.NoError(t, err)
		return gone
	}
	require.False(t, wait(first))
	require.Equal(t, 1, waiters())
	require.False(t, wait(second))
	require.Equal(t, 2, waiters(), "of one watch: the library would keep both")
	_, err := conn.Set(node, nil, -1)
	require.NoError(t, err)
	assert.ElementsMatch(t, []*lease{first, second}, []*lease{<-woken, <-woken})
	require.False(t, wait(second))
	require.NoError(t, got.Release(t.Context()))
	assert.Equal(t, second, <-woken)
	assert.True(t, wait(second))
	node = next.lease.state().path
	require.False(t, wait(second))
	s.End()
	assert.Equal(t, second, <-woken, "with the session")
	_, err = second.await(t.Context(), node, func() {})
	require.ErrorIs(t, err, errSessionEnded)
	s.watches.fireAll() // as Stop does
	assert.Empty(t, woken)
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	assert.Empty(t, s.watches.nodes, "nothing is left of them")
}

// Nobody has used the session for long, or for so long that no hold may begin on it without a write. If
// it ends, that ends no hold on the next one which is extended together with one of its own.
func TestSession_thatIdles(t *testing.T) {
	t.Parallel()
	d := driverOf(t)
	l := take(t, d, claims.Fresh())
	s := l.lease.session
	for _, idle := range []time.Duration{longTTL, longTTL * 3 / 5} {
		require.NoError(t, l.Release(t.Context()))
		s.mu.Lock()
		s.heartbeats.confirmed, s.heartbeats.pending = clock.Now().Add(-idle), nil
		s.mu.Unlock()
		l = take(t, d, claims.Fresh())
		assert.Same(t, s, l.lease.session, "a quorum still knows it")
		assert.Greater(t, l.Validity(), longTTL/2)
	}
	s.End()
	errs := d.ExtendAll(t.Context(), []driver.Claim{l, take(t, d, claims.Fresh())}, longTTL)
	require.ErrorIs(t, errs[0], driver.ErrLost)
	require.NoError(t, errs[1])
}

// Two at once, as an Unlock whose reply is late and the clean-up: it is the lease's own deletion
// that either finds.
func TestRelease_twiceAtOnce(t *testing.T) {
	t.Parallel()
	d, name := driverOf(t), claims.Fresh()
	for range 20 {
		l := take(t, d, name)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { assert.NoError(t, l.Release(t.Context())) })
		}
		both.Wait()
	}
}

// The server has ended the session, of which the Client has yet to hear.
func TestInspect_whenItsSessionHasEnded(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	d := driverOf(t)
	for range 3 {
		_, err := d.Inspect(t.Context(), claims.Fresh())
		require.NoError(t, err)
		session, ok := d.sessions.Any()
		require.True(t, ok)
		s.EndSession(session.id)
	}
	_, err := d.Inspect(t.Context(), claims.Fresh())
	require.NoError(t, err)
}
