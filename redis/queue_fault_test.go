package redis_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// faultyRoom is a lock whose holder the faults do not reach, and a proxy for those that they do.
func faultyRoom(t *testing.T) (r *queueTest, p *testserver.Proxy, unlock func(), healthy *locker.Client) {
	t.Helper()
	s, p, direct := behindProxy(t)
	r = newQueueTest(t, direct)
	healthy = newClient(t, s.Addr())
	unlock = r.hold(healthy)
	return r, p, unlock, healthy
}

func TestQueue_aLostMessageCostsALookAndNotTheTurn(t *testing.T) {
	t.Parallel()
	r, p, unlock, _ := faultyRoom(t)
	// Scripts go past the proxy that takes the messages.
	subs := newClientThatSubscribesAt(t, r.direct.Options().Addr, p.Addr())
	all := r.joinAll(t.Context(), 4, subs)
	r.subscribed(1)
	p.DropReplies(true)
	unlock()
	wantServed(t, all)
	r.wantOrder(upTo(4)...)
	p.DropReplies(false)
	r.wantEmpty()
}

// newClientThatSubscribesAt makes a Client whose connections go to addr, but for the one for its subscriptions.
func newClientThatSubscribesAt(t *testing.T, addr, subscriptions string) *locker.Client {
	t.Helper()
	d := &splitDialer{addr: addr, subscriptions: subscriptions}
	return clientOf(t, connect(t, addr, heedingCtx, func(o *goredis.Options) { o.Dialer = d.dial }))
}

// splitDialer sends a connection to subscriptions when it subscribes. That is known only once it writes.
type splitDialer struct{ addr, subscriptions string }

func (d *splitDialer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, d.addr)
	if err != nil {
		return nil, err
	}
	return &splitConn{Conn: conn, d: d}, nil
}

type splitConn struct {
	net.Conn
	d             *splitDialer
	subscriptions atomic.Pointer[net.Conn]
}

func (c *splitConn) Write(b []byte) (int, error) {
	if c.subscriptions.Load() == nil && strings.Contains(string(b), "\r\nsubscribe\r\n") {
		conn, err := net.Dial("tcp", c.d.subscriptions)
		if err != nil {
			return 0, err
		}
		c.subscriptions.Store(&conn)
	}
	return c.current().Write(b)
}

func (c *splitConn) current() net.Conn {
	if subscriptions := c.subscriptions.Load(); subscriptions != nil {
		return *subscriptions
	}
	return c.Conn
}

func (c *splitConn) Read(b []byte) (int, error) {
	return c.current().Read(b)
}

func (c *splitConn) SetDeadline(t time.Time) error      { return c.current().SetDeadline(t) }
func (c *splitConn) SetReadDeadline(t time.Time) error  { return c.current().SetReadDeadline(t) }
func (c *splitConn) SetWriteDeadline(t time.Time) error { return c.current().SetWriteDeadline(t) }

func (c *splitConn) Close() error {
	if subscriptions := c.subscriptions.Load(); subscriptions != nil {
		_ = (*subscriptions).Close()
	}
	return c.Conn.Close()
}

func TestQueue_outlivesACutOfItsSubscription(t *testing.T) {
	t.Parallel()
	r, p, unlock, healthy := faultyRoom(t)
	c := newClientThatSubscribesAt(t, r.direct.Options().Addr, p.Addr())
	all := r.joinAll(t.Context(), 6, c, healthy)
	r.subscribed(2)
	p.Sever()
	r.subscribed(1)
	unlock() // those who are cut off are passed over, and come back
	require.NoError(t, await(t, all[1]), "who is subscribed is served")
	p.Restore()
	wantServed(t, append([]<-chan error{all[0]}, all[2:]...))
	r.wantEmpty()
}

func TestQueue_keepsItsOrderWhenTheSubscriptionComesBackBeforeTheHandOver(t *testing.T) {
	t.Parallel()
	r, p, unlock, healthy := faultyRoom(t)
	c := newClientThatSubscribesAt(t, r.direct.Options().Addr, p.Addr())
	all := r.joinAll(t.Context(), 8, c, healthy)
	r.subscribed(2)
	p.ResetConns()
	r.subscribed(1)
	r.subscribed(2)
	unlock()
	wantServed(t, all)
	r.wantOrder(upTo(8)...)
	r.wantEmpty()
}

func TestQueue_outlivesACutOfEverything(t *testing.T) {
	t.Parallel()
	r, p, unlock, healthy := faultyRoom(t)
	all := r.joinAll(t.Context(), 20, newClient(t, p.Addr()), newClient(t, p.Addr()), healthy)
	r.subscribed(3)
	p.Sever()
	unlock()
	require.NoError(t, await(t, all[2]), "who is not cut off is served")
	p.Restore()
	wantServed(t, append(all[:2:2], all[3:]...))
	r.wantEmpty()
}

// A claim that the network keeps back for longer than it lasts.
func TestQueue_aClaimThatArrivesAfterAnotherTookOver(t *testing.T) {
	t.Parallel()
	r, p, unlock, healthy := faultyRoom(t)
	late := r.join(t.Context(), newClient(t, p.Addr()), 0)
	r.subscribed(1)
	next := r.join(t.Context(), healthy, 1)
	r.subscribed(2)
	p.HoldRequests(true)
	unlock()
	require.NoError(t, await(t, next), "after the claim has expired")
	p.ReleaseRequests()
	require.NoError(t, await(t, late))
	r.wantOrder(1, 0)
	r.wantEmpty()
}

func TestQueue_aClaimThatArrivesLateButBeforeAnyoneLooked(t *testing.T) {
	t.Parallel()
	r, p, unlock, _ := faultyRoom(t)
	late := r.join(t.Context(), newClient(t, p.Addr()), 0)
	r.subscribed(1)
	p.HoldRequests(true)
	unlock()
	eventually(t, "the claim has expired", func() bool {
		return r.direct.PTTL(t.Context(), keyOf(r.name)).Val() < keep
	})
	p.ReleaseRequests()
	require.NoError(t, await(t, late))
	r.wantEmpty()
}

// The first to ask after an outage finds that it had been granted the lock before.
func TestQueue_aGrantWhoseReplyIsLostEndsNoLaterThanTheServerSays(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	r, p, unlock, _ := faultyRoom(t)
	c := clientOf(t, connect(t, p.Addr(), heedingCtx, func(o *goredis.Options) { o.MaxRetries = -1 }),
		locker.WithTTL(ttl), locker.WithoutRenewal())
	m := c.Mutex(r.name)
	done := async(func() error { return m.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return r.length() == 1 })
	r.subscribed(1)
	time.Sleep(100 * tick) // it looks once when it begins to listen
	waiter := r.queued()[0]
	p.DropReplies(true)
	unlock()
	eventually(t, "it has been granted", func() bool { return r.owner() == waiter })
	time.Sleep(time.Second) // for as long as the outage lasts
	p.DropReplies(false)
	p.ResetConns()
	require.NoError(t, await(t, done))
	free := time.Now().Add(r.direct.PTTL(t.Context(), keyOf(r.name)).Val() - keep + time.Millisecond) // it counts whole ones
	assert.False(t, m.Deadline().After(free), "the deadline %v, and others are let in at %v", m.Deadline(), free)
	require.NoError(t, m.Unlock(t.Context()))
	r.wantEmpty()
}

// A waiter looks once a second or so. That it has not asked for TTL/2 is no outage of TTL/2.
func TestQueue_aWaiterWithAShortTTLRidesOutAFailureToo(t *testing.T) {
	t.Parallel()
	const ttl = 1200 * time.Millisecond
	r, p, unlock, _ := faultyRoom(t)
	c := clientOf(t, connect(t, p.Addr(), heedingCtx, func(o *goredis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 }), locker.WithTTL(ttl))
	waiting := r.join(t.Context(), c, 0)
	r.subscribed(1)
	time.Sleep(ttl/2 + ttl/8)
	p.Sever()
	select {
	case err := <-waiting:
		t.Fatalf("gave up at the first failure: %v", err)
	case <-time.After(ttl / 4):
	}
	p.Restore()
	unlock()
	require.NoError(t, await(t, waiting))
	r.wantEmpty()
}

// A client that may open no connection to listen on, beside others that listen and never leave the lock alone.
func TestQueue_whoCannotSubscribeDoesNotStarve(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newQueueTest(t, connect(t, s.Addr()))
	var dialled atomic.Bool
	mute := clientOf(t, connect(t, s.Addr(), heedingCtx, func(o *goredis.Options) {
		o.PoolSize, o.DialerRetries = 1, 1
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dialled.Swap(true) {
				return nil, errors.New("no more connections")
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	}))
	require.NoError(t, mute.Mutex("other").Lock(t.Context()), "opens the only connection")
	unlock := r.hold(newClient(t, s.Addr()))
	stop := r.keepBusy(newClients(t, s.Addr(), 2))
	alone := r.join(t.Context(), mute, 99)
	unlock()
	require.NoError(t, await(t, alone), "it is served among others")
	stop()
	r.wantEmpty()
}

// The subscription's connection breaks, and the server's host is silent from then on.
func TestQueue_closeIsPromptWhileTheSubscriptionIsConnectedAnew(t *testing.T) {
	t.Parallel()
	s, p, direct := behindProxy(t)
	r := newQueueTest(t, direct)
	unlock := r.hold(newClient(t, s.Addr()))
	defer unlock()
	var silent atomic.Bool
	dialling, over := make(chan struct{}, 100), make(chan struct{})
	defer close(over)
	c := clientOf(t, connect(t, p.Addr(), heedingCtx, func(o *goredis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if silent.Load() {
				dialling <- struct{}{}
				select { // as one that nobody answers
				case <-ctx.Done():
				case <-over:
				}
				return nil, errors.New("no answer")
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	}))
	done := r.join(t.Context(), c, 0)
	r.subscribed(1)
	silent.Store(true)
	p.ResetConns()
	<-dialling
	start := time.Now()
	_ = c.Close()
	assert.Less(t, time.Since(start), 7*time.Second, "Close takes 5s at most")
	require.ErrorIs(t, await(t, done), locker.ErrClosed)
}
