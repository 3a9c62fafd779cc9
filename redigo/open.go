package redigo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/adapterurl"
	"github.com/go-locker/locker/internal/redisurl"
)

func init() {
	locker.Register("redigo", open)
	locker.Register("redigos", open)
}

// open makes a pool of its own of a URL as the package's documentation has it.
func open(_ context.Context, u *locker.URL) (locker.Driver, error) {
	size, readTimeout := 10*runtime.GOMAXPROCS(0), 3*time.Second
	if err := errors.Join(
		adapterurl.Number(u, "pool_size", &size), adapterurl.Duration(u, "read_timeout", &readTimeout),
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
	addr, err := target(u, pool, readTimeout)
	if err != nil {
		return nil, err
	}
	d, err := NewDriver(pool)
	if err != nil {
		return nil, err
	}
	d.runner.replicas = replicas
	d.addr, d.owned = addr, true
	return d, nil
}

// target tells pool what to connect to, and returns the address if that is one server.
func target(u *locker.URL, pool *redis.Pool, readTimeout time.Duration) (addr string, err error) {
	master, hasMaster := u.Take("master_name")
	if hasMaster && master == "" {
		return "", errors.New("parameter master_name is empty")
	}
	if !hasMaster {
		if addr, err = redisurl.Addr(u); err != nil {
			return "", fmt.Errorf("%w; if they are sentinels, say so by master_name", err)
		}
	}
	db, err := redisurl.Database(u)
	if err != nil {
		return "", err
	}
	transport, err := transportOptions(u)
	if err != nil {
		return "", err
	}
	transport = append(transport, redis.DialReadTimeout(readTimeout))
	user, password := adapterurl.User(u)
	servers := dialer(transport, user, password, db)
	if !hasMaster {
		pool.DialContext = func(ctx context.Context) (redis.Conn, error) { return servers(ctx, addr) }
		return addr, nil
	}
	user, hasUser := u.Take("sentinel_username")
	password, hasPassword := u.Take("sentinel_password")
	if hasUser && !hasPassword {
		return "", errors.New("parameter sentinel_username goes with sentinel_password")
	}
	s := &sentinels{
		master: master, addrs: adapterurl.Addrs(u, redisurl.SentinelPort),
		servers: servers, sentinels: dialer(transport, user, password, 0),
	}
	pool.DialContext, pool.TestOnBorrowContext = s.dial, s.test
	return "", nil
}

// dialFunc makes a connection to a server.
type dialFunc func(ctx context.Context, addr string) (redis.Conn, error)

func dialer(transport []redis.DialOption, user, password string, db int) dialFunc {
	options := slices.Concat(transport, []redis.DialOption{
		redis.DialUsername(user), redis.DialPassword(password), redis.DialDatabase(db),
	})
	return func(ctx context.Context, addr string) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", addr, options...)
	}
}

// transportOptions says how to reach a server, whichever it is. TLS is the dialler's own, for the
// handshake of redigo's heeds no context.
func transportOptions(u *locker.URL) ([]redis.DialOption, error) {
	dialTimeout, writeTimeout := 5*time.Second, 3*time.Second
	if err := errors.Join(
		adapterurl.Duration(u, "dial_timeout", &dialTimeout), adapterurl.Duration(u, "write_timeout", &writeTimeout),
	); err != nil {
		return nil, err
	}
	plain := &net.Dialer{Timeout: dialTimeout}
	dial := plain.DialContext
	if u.Scheme == "redigos" {
		config, err := adapterurl.TLS(u, "")
		if err != nil {
			return nil, err
		}
		dial = (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
	}
	return []redis.DialOption{redis.DialContextFunc(dial), redis.DialWriteTimeout(writeTimeout)}, nil
}
