package redis_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

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
