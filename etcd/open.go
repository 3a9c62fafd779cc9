package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/adapterurl"
)

func init() {
	locker.Register("etcd", open)
	locker.Register("etcds", open)
}

const port = "2379"

// open makes an etcd client of its own of a URL as the package's documentation has it.
func open(ctx context.Context, u *locker.URL) (locker.Driver, error) {
	config, err := clientConfig(u)
	if err != nil {
		return nil, err
	}
	// The client's context is that of all its life, and ctx bounds its making alone.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
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
	d, err := NewDriver(cli)
	if err != nil {
		cancel()
		return nil, errors.Join(err, cli.Close())
	}
	d.owned = true
	return d, nil
}

func clientConfig(u *locker.URL) (clientv3.Config, error) {
	c := clientv3.Config{
		Endpoints:   adapterurl.Addrs(u, port),
		DialTimeout: 5 * time.Second,
		// No server allows more by default, nor does the library.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(), // what matters is in the errors
	}
	if u.Path != "" && u.Path != "/" {
		return c, fmt.Errorf("path %q: %s:// takes none; for a prefix of the keys there is the parameter prefix", u.Path, u.Scheme)
	}
	if err := adapterurl.Duration(u, "dial_timeout", &c.DialTimeout); err != nil {
		return c, err
	}
	c.Username, c.Password = adapterurl.User(u)
	if (c.Username == "") != (c.Password == "") {
		return c, errors.New("a user goes with a password")
	}
	// A server that is back is found soon: by default the pauses grow from a second to two minutes.
	pauses := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	c.DialOptions = []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: c.DialTimeout}),
		grpc.WithChainUnaryInterceptor(keepDetail),
	}
	if u.Scheme == "etcds" {
		var err error
		if c.TLS, err = adapterurl.TLS(u, ""); err != nil {
			return c, err
		}
		if name := c.TLS.ServerName; name != "" {
			creds := named{credentials.NewTLS(c.TLS), name}
			c.DialOptions = append(c.DialOptions, grpc.WithTransportCredentials(creds))
		}
	}
	return c, nil
}

// named are credentials for a server of another name than its address: the library has the name that TLS is
// configured with overwritten by the address.
type named struct {
	credentials.TransportCredentials
	name string
}

func (n named) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return n.TransportCredentials.ClientHandshake(ctx, n.name, conn)
}

func (n named) Clone() credentials.TransportCredentials {
	return named{n.TransportCredentials.Clone(), n.name}
}
