package redigo

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript"
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
	t, err := redisurl.Read(ctx, u, plainScheme, false)
	if err != nil {
		return nil, err
	}
	size := cmp.Or(t.PoolSize, 10*runtime.GOMAXPROCS(0))
	t.ReadTimeout, t.DialTimeout = cmp.Or(t.ReadTimeout, 3*time.Second), cmp.Or(t.DialTimeout, 5*time.Second)
	if t.Replicas.Timeout >= t.ReadTimeout {
		return nil, fmt.Errorf("parameter replica_timeout=%v is not below read_timeout, which is %v", t.Replicas.Timeout, t.ReadTimeout)
	}
	pool := &redis.Pool{MaxIdle: size, MaxActive: size, Wait: true, IdleTimeout: 5 * time.Minute}
	servers := dialer(t, t.User, t.Password, t.DB)
	addr := t.Addrs[0]
	pool.DialContext = func(ctx context.Context) (redis.Conn, error) { return servers(ctx, addr) }
	var s *sentinels
	if t.Master != "" {
		s = &sentinels{master: t.Master, addrs: slices.Clone(t.Addrs), servers: servers, sentinels: dialer(t, t.Sentinel.Username, t.Sentinel.Password, 0)}
		pool.DialContext, pool.TestOnBorrowContext = s.dial, s.test
		addr = ""
	}
	r := &runner{pool: pool, replicas: t.Replicas, owned: true}
	d := &backend{scripts: redisscript.NewDriver(r), runner: r, addr: addr}
	if s != nil {
		redisscript.Watch(d.scripts, t.Addrs, func(ctx context.Context, addr string) (map[string]string, error) {
			return redis.StringMap(s.askOne(ctx, addr, "master"))
		})
	}
	return d, nil
}

// dialFunc makes a connection to a server.
type dialFunc func(ctx context.Context, addr string) (redis.Conn, error)

func dialer(t *redisurl.Target, user, password string, db int) dialFunc {
	dial := t.DialTLS(t.DialTimeout) // for the handshake of redigo's heeds no context
	if dial == nil {
		dial = (&net.Dialer{Timeout: t.DialTimeout}).DialContext
	}
	options := []redis.DialOption{
		redis.DialUsername(user), redis.DialPassword(password), redis.DialDatabase(db), redis.DialClientName(t.ClientName),
		redis.DialContextFunc(dial), redis.DialReadTimeout(t.ReadTimeout), redis.DialWriteTimeout(cmp.Or(t.WriteTimeout, 3*time.Second)),
	}
	return func(ctx context.Context, addr string) (redis.Conn, error) {
		network := "tcp"
		if strings.HasPrefix(addr, "/") {
			network = "unix"
		}
		return redis.DialContext(ctx, network, addr, options...)
	}
}
