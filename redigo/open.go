package redigo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/redisurl"
)

// plainScheme is the scheme without TLS.
const plainScheme = "redigo"

func init() {
	driver.Register(plainScheme, open)
	driver.Register(plainScheme+"s", open)
}

// open makes a pool of its own of a URL as the package's documentation has it.
func open(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	size, readTimeout := 10*runtime.GOMAXPROCS(0), 3*time.Second
	if err := errors.Join(
		adapter.Number(u, "pool_size", &size), adapter.Duration(u, "read_timeout", &readTimeout),
	); err != nil {
		return nil, err
	}
	replicas, err := redisurl.Replicas(u)
	if err != nil {
		return nil, err
	}
	if replicas.Timeout >= readTimeout {
		return nil, fmt.Errorf("parameter replica_timeout=%v is not below read_timeout, which is %v", replicas.Timeout, readTimeout)
	}
	pool := &redis.Pool{MaxIdle: size, MaxActive: size, Wait: true, IdleTimeout: 5 * time.Minute}
	addr, err := target(ctx, u, pool, readTimeout)
	if err != nil {
		return nil, err
	}
	var opts []DriverOption
	if replicas.N > 0 {
		opts = append(opts, WaitReplicas(replicas.N, replicas.Timeout))
	}
	made, err := NewDriver(pool, opts...)
	if err != nil {
		return nil, err
	}
	d := made.(*backend)
	d.addr, d.owned = addr, true
	return d, nil
}

// target tells pool what to connect to, and returns the address if that is one server.
func target(ctx context.Context, u *driver.URL, pool *redis.Pool, readTimeout time.Duration) (addr string, err error) {
	sentinel, err1 := redisurl.Sentinels(u)
	socket, err2 := redisurl.Socket(u, plainScheme)
	db, err3 := redisurl.Database(u)
	user, password, err4 := adapter.User(u, true)
	transport, err5 := transportOptions(ctx, u)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return "", err
	}
	transport = append(transport, redis.DialReadTimeout(readTimeout))
	servers := dialer(transport, user, password, db)
	if sentinel.Master != "" {
		if socket != "" {
			return "", errors.New("parameter socket names one server: it cannot be used with master_name")
		}
		s := &sentinels{
			master: sentinel.Master, addrs: adapter.Addrs(u, redisurl.SentinelPort),
			servers: servers, sentinels: dialer(transport, sentinel.Username, sentinel.Password, 0),
		}
		pool.DialContext, pool.TestOnBorrowContext = s.dial, s.test
		return "", nil
	}
	if len(u.Hosts) > 1 {
		return "", fmt.Errorf("%s:// takes one host, and the URL has %d; if these are sentinels, add the parameter master_name", u.Scheme, len(u.Hosts))
	}
	addr = cmp.Or(socket, adapter.Addrs(u, redisurl.Port)[0])
	pool.DialContext = func(ctx context.Context) (redis.Conn, error) { return servers(ctx, addr) }
	return addr, nil
}

// dialFunc makes a connection to a server.
type dialFunc func(ctx context.Context, addr string) (redis.Conn, error)

func dialer(transport []redis.DialOption, user, password string, db int) dialFunc {
	options := slices.Concat(transport, []redis.DialOption{
		redis.DialUsername(user), redis.DialPassword(password), redis.DialDatabase(db),
	})
	return func(ctx context.Context, addr string) (redis.Conn, error) {
		network := "tcp"
		if strings.HasPrefix(addr, "/") {
			network = "unix"
		}
		return redis.DialContext(ctx, network, addr, options...)
	}
}

// transportOptions says how to reach a server, whichever it is, and under which name. TLS is the
// dialler's own, for the handshake of redigo's heeds no context.
func transportOptions(ctx context.Context, u *driver.URL) ([]redis.DialOption, error) {
	dialTimeout, writeTimeout := 5*time.Second, 3*time.Second
	name, err1 := redisurl.ClientName(u)
	config, err2 := adapter.TLS(ctx, u, plainScheme, "")
	if err := errors.Join(
		adapter.Duration(u, "dial_timeout", &dialTimeout), adapter.Duration(u, "write_timeout", &writeTimeout), err1, err2,
	); err != nil {
		return nil, err
	}
	tcp := &net.Dialer{Timeout: dialTimeout}
	dial := tcp.DialContext
	if config != nil {
		dial = adapter.TLSDialer(tcp, config)
	}
	return []redis.DialOption{redis.DialContextFunc(dial), redis.DialWriteTimeout(writeTimeout), redis.DialClientName(name)}, nil
}
