package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
)

const (
	plainScheme = "etcd" // the scheme without TLS
	port        = "2379"
)

func init() {
	driver.Register(plainScheme, open)
	driver.Register(plainScheme+"s", open)
}

// open makes an etcd client of its own of a URL as the package's documentation has it.
func open(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	all := &conns{open: map[*conn]struct{}{}}
	config, err := clientConfig(ctx, u, all)
	if err == nil {
		err = u.Unknown() // before the client makes a request, as it does with a user
	}
	if err != nil {
		return nil, err
	}
	// The client's context ends with the client. ctx bounds New alone, which asks for a token if there
	// is a user, for a dial timeout at most. Later requests have limits of their own.
	own, cancel := context.WithCancel(context.Background())
	forget := context.AfterFunc(ctx, cancel)
	config.Context = own
	cli, err := clientv3.New(config)
	if !forget() && err == nil {
		err = errors.Join(ctx.Err(), cli.Close())
	}
	if err != nil {
		cancel()
		return nil, err
	}
	d := newDriver(cli)
	d.owned, d.conns = true, all
	return d, nil
}

func clientConfig(ctx context.Context, u *driver.URL, all *conns) (clientv3.Config, error) {
	c := clientv3.Config{
		Endpoints:         adapter.Addrs(u, port),
		DialTimeout:       5 * time.Second,
		DialKeepAliveTime: leastKeepalive, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(), // what matters is in the errors
	}
	if u.Path != "" && u.Path != "/" {
		return c, fmt.Errorf("path %q: %s:// takes no path; for a prefix of the keys use the parameter prefix", u.Path, u.Scheme)
	}
	var err1 error
	c.Username, c.Password, err1 = adapter.User(u, false)
	config, err2 := adapter.TLS(ctx, u, plainScheme, "")
	if err := errors.Join(err1, err2, adapter.Duration(u, "dial_timeout", &c.DialTimeout), keepalive(u, &c)); err != nil {
		return c, err
	}
	// A server that is back is found soon: by default the pauses grow from a second to two minutes.
	pauses := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	c.DialOptions = []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: c.DialTimeout}),
	}
	own := creds{TransportCredentials: insecure.NewCredentials(), conns: all}
	if config != nil {
		c.TLS = config.Config
		own.TransportCredentials, own.name, own.tls = credentials.NewTLS(c.TLS), c.TLS.ServerName, config
	}
	c.DialOptions = append(c.DialOptions, grpc.WithTransportCredentials(own))
	return c, nil
}

// leastKeepalive is how often a connection may be seen to: the library does not do it more often,
// whatever it is told.
const leastKeepalive = 10 * time.Second

func keepalive(u *driver.URL, c *clientv3.Config) error {
	if err := errors.Join(
		adapter.Duration(u, "keepalive_time", &c.DialKeepAliveTime), adapter.Duration(u, "keepalive_timeout", &c.DialKeepAliveTimeout),
	); err != nil {
		return err
	}
	if c.DialKeepAliveTime < leastKeepalive {
		return fmt.Errorf("parameter keepalive_time=%v: gRPC allows %v or more", c.DialKeepAliveTime, leastKeepalive)
	}
	return nil
}

// conns are the connections of a client that Open has made. One on which nothing comes back, though
// TCP goes on acknowledging what is sent, is left: by itself gRPC does that after its keepalive, of
// 10 s at the least.
type conns struct {
	mu   sync.Mutex
	open map[*conn]struct{}
}

// leave closes the connections on which nothing has come for d since something was sent, and
// reports whether there were any.
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
