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
)

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
