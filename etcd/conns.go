package etcd

import (
	"cmp"
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/go-locker/locker/internal/adapter"
)

// conns are the connections of a client that Open has made. One on which nothing comes back, though
// TCP goes on acknowledging what is sent, is left: by itself gRPC does that after its keepalive, of
// 10 s at the least.
type conns struct {
	mu   sync.Mutex
	open map[*conn]struct{}
}

// leave closes the connections on which nothing has come for d since something was sent, and reports
// whether there were any.
func (c *conns) leave(d time.Duration) bool {
	c.mu.Lock()
	var silent []*conn
	for own := range c.open {
		if !own.asked.IsZero() && time.Since(own.asked) >= d {
			silent = append(silent, own)
		}
	}
	c.mu.Unlock()
	for _, own := range silent {
		_ = own.Close()
	}
	return len(silent) > 0
}

// conn is one connection.
type conn struct {
	net.Conn
	all   *conns
	asked time.Time // when the first was sent since something has come; zero: nothing was. Guarded by all.mu
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.asked = time.Time{}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.all.mu.Lock()
	if c.asked.IsZero() {
		c.asked = time.Now()
	}
	c.all.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// creds are credentials through which all connections of a client go.
type creds struct {
	credentials.TransportCredentials
	name  string // of the server, if it is another than its address: the library overwrites the one that TLS is configured with
	conns *conns
	tls   *adapter.TLSConfig // nil: none
}

func (c creds) ClientHandshake(ctx context.Context, name string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	own := &conn{Conn: raw, all: c.conns}
	c.conns.mu.Lock()
	c.conns.open[own] = struct{}{}
	c.conns.mu.Unlock()
	using := c.TransportCredentials
	if c.tls != nil { // its files may have been replaced
		using = credentials.NewTLS(c.tls.Current(ctx))
	}
	secure, info, err := using.ClientHandshake(ctx, cmp.Or(c.name, name), own)
	if err != nil {
		_ = own.Close()
	}
	return secure, info, err
}

func (c creds) Clone() credentials.TransportCredentials {
	return creds{c.TransportCredentials.Clone(), c.name, c.conns, c.tls}
}
