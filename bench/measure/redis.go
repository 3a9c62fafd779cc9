package main

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redigoredis "github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/redigo"
	"github.com/go-locker/locker/redis"
	"github.com/go-locker/locker/redlock"
)

const (
	redisTTL      = 30 * time.Second // far longer than any hold here lasts
	quorumTTL     = 8 * time.Second  // redsync's default
	goRedisModule = "github.com/redis/go-redis/v9"
	redsyncModule = "github.com/go-redsync/redsync/v4"
)

var redisLibraries = []library{
	{
		"locker", lockerModule, "ContextTimeoutEnabled, as locker.Open sets it", redisTTL,
		openNodes(goRedisNode, 1),
	},
	{
		"redsync", redsyncModule, "no limit of tries; all other settings are the defaults", redisTTL,
		openRedsync(),
	},
	// It now and then waits for a lock that is free until its context ends: bench/thirdparty has how.
	{
		"rueidislock", "github.com/redis/rueidis",
		"KeyMajority 1, NoLoopTracking, TryNextAfter as long as the TTL", redisTTL, openRueidislock,
	},
	{"redislock", "github.com/bsm/redislock", "LinearBackoff 10 ms", redisTTL, openRedislock},
	{
		"locker-redigo", lockerModule, "redigo, with a pool as large as that of go-redis", redisTTL,
		openNodes(redigoNode, 1),
	},
	{
		"bare", goRedisModule, "no lock: EVALSHA of SET NX PX, and of GET and DEL", redisTTL,
		openBare(false),
	},
	{
		"bare-autopipeline", goRedisModule, "no lock: the same through go-redis's AutoPipeline", redisTTL,
		openBare(true),
	},
}

var quorumLibraries = []library{
	{"locker", lockerModule, "go-redis nodes", quorumTTL, openNodes(goRedisNode, 5)},
	{"locker-redigo", lockerModule, "redigo nodes", quorumTTL, openNodes(redigoNode, 5)},
	{
		"redsync", redsyncModule, "no limit of tries; all other settings are the defaults", quorumTTL,
		openRedsync(),
	},
	{
		"redsync-failfast", redsyncModule, "no limit of tries, WithFailFast", quorumTTL,
		openRedsync(redsync.WithFailFast(true)),
	},
	{"bare", goRedisModule, "no lock: a script to all nodes at the same time, until a majority has answered; then the same with a second script", quorumTTL, openBare(false)},
}

func newGoRedis(addr string, sent *tally) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: addr, Dialer: sent.dialRedis})
}

func goRedisNode(addr string, sent *tally) (driver.Driver, func(), error) {
	rdb := goredis.NewClient(&goredis.Options{
		Addr: addr, Dialer: sent.dialRedis,
		ContextTimeoutEnabled: true,
	})
	d, err := redis.NewDriver(rdb)
	return d, func() { _ = rdb.Close() }, err
}

func redigoNode(addr string, sent *tally) (driver.Driver, func(), error) {
	connections := goredis.NewClient(&goredis.Options{}).Options().PoolSize
	pool := &redigoredis.Pool{
		MaxIdle: connections, MaxActive: connections, Wait: true,
		DialContext: func(ctx context.Context) (redigoredis.Conn, error) {
			return redigoredis.DialContext(ctx, "tcp", addr, redigoredis.DialContextFunc(sent.dialRedis),
				redigoredis.DialReadTimeout(3*time.Second), redigoredis.DialWriteTimeout(3*time.Second))
		},
	}
	d, err := redigo.NewDriver(pool)
	return d, func() { _ = pool.Close() }, err
}

type open = func(addrs []string, sent *tally, ttl time.Duration) (*client, error)

// openNodes is a lock on one server, or on a majority of several.
func openNodes(node func(addr string, sent *tally) (driver.Driver, func(), error), n int) open {
	return func(addrs []string, sent *tally, ttl time.Duration) (*client, error) {
		var drivers []driver.Driver
		var closers []func()
		closeAll := func() {
			for _, closeIt := range closers {
				closeIt()
			}
		}
		for _, addr := range addrs[:n] {
			d, closeIt, err := node(addr, sent)
			closers = append(closers, closeIt)
			if err != nil {
				closeAll()
				return nil, err
			}
			drivers = append(drivers, d)
		}
		var c *locker.Client
		var err error
		if n == 1 {
			c, err = locker.New(drivers[0], locker.WithTTL(ttl))
		} else {
			c, err = redlock.New(drivers, locker.WithTTL(ttl))
		}
		if err != nil {
			closeAll()
			return nil, err
		}
		return clientOf(c, closeAll), nil
	}
}

func openRedsync(opts ...redsync.Option) open {
	return func(addrs []string, sent *tally, ttl time.Duration) (*client, error) {
		opts := append([]redsync.Option{redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt)}, opts...)
		var nodes []*goredis.Client
		var pools []redsyncpool.Pool
		for _, addr := range addrs {
			nodes = append(nodes, newGoRedis(addr, sent))
			pools = append(pools, redsyncredis.NewPool(nodes[len(nodes)-1]))
		}
		rs := redsync.New(pools...)
		// A Mutex for each hold. With WithFailFast, Unlock returns before all nodes were asked, and
		// the late requests carry the value of the next hold if Lock has set that meanwhile.
		return holder(func(ctx context.Context, name string) (unlockFunc, error) {
			m := rs.NewMutex(name, opts...)
			return func(ctx context.Context) error {
				ok, err := m.UnlockContext(ctx)
				if ok {
					return nil
				}
				return errors.Join(err, redsync.ErrFailed)
			}, m.LockContext(ctx)
		}, func() { closeNodes(nodes) }), nil
	}
}

func closeNodes(nodes []*goredis.Client) {
	for _, rdb := range nodes {
		_ = rdb.Close()
	}
}

func openRueidislock(addrs []string, sent *tally, ttl time.Duration) (*client, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress:       addrs[:1],
			ForceSingleClient: true,
			DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config,
			) (net.Conn, error) {
				return sent.dialRedis(ctx, "tcp", addr)
			},
		},
		KeyValidity:    ttl,
		KeyMajority:    1, // one server: more keys on it add work and no safety
		NoLoopTracking: true,
		// by default 20 ms: a try that takes longer is undone, and then waits for a lock that is free
		TryNextAfter: ttl,
	})
	if err != nil {
		return nil, err
	}
	return holder(func(ctx context.Context, name string) (unlockFunc, error) {
		_, cancel, err := l.WithContext(ctx, name)
		return func(context.Context) error { cancel(); return nil }, err
	}, l.Close), nil
}

func openRedislock(addrs []string, sent *tally, ttl time.Duration) (*client, error) {
	rdb := newGoRedis(addrs[0], sent)
	l := redislock.New(rdb)
	return holder(func(ctx context.Context, name string) (unlockFunc, error) {
		lock, err := l.Obtain(ctx, name, ttl,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)})
		if err != nil {
			return nil, err
		}
		return lock.Release, nil
	}, func() { _ = rdb.Close() }), nil
}

// What a lock on one node needs at least.
var (
	take = goredis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`)
	give = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
)

// openBare is no lock: what it takes is taken only if nobody else wants it, and nobody counts what
// nodes say.
func openBare(pipelined bool) open {
	return func(addrs []string, sent *tally, ttl time.Duration) (*client, error) {
		var nodes []*goredis.Client
		var to []goredis.Scripter
		for _, addr := range addrs {
			rdb := newGoRedis(addr, sent)
			nodes = append(nodes, rdb)
			to = append(to, rdb)
			if pipelined {
				pipe, err := rdb.AutoPipeline()
				if err != nil {
					closeNodes(nodes)
					return nil, err
				}
				to[len(to)-1] = pipe
			}
		}
		return &client{
			waiter: func(name string) lockFunc {
				keys := []string{name}
				unlock := func(ctx context.Context) error { return ask(ctx, to, give, keys, "owner") }
				return func(ctx context.Context) (unlockFunc, error) {
					return unlock, ask(ctx, to, take, keys, "owner", ttl.Milliseconds())
				}
			},
			close: func() { closeNodes(nodes) },
		}, nil
	}
}

// ask returns when a majority has answered.
func ask(ctx context.Context, nodes []goredis.Scripter, script *goredis.Script, keys []string,
	args ...any,
) error {
	if len(nodes) == 1 {
		return script.Run(ctx, nodes[0], keys, args...).Err()
	}
	answers := make(chan error, len(nodes))
	for _, node := range nodes {
		go func() {
			err := script.Run(ctx, node, keys, args...).Err()
			if errors.Is(err, goredis.Nil) { // an earlier give has yet to arrive
				err = nil
			}
			answers <- err
		}()
	}
	var failures []error
	for agreed := 0; agreed <= len(nodes)/2; {
		if err := <-answers; err == nil {
			agreed++
		} else if failures = append(failures, err); len(failures) > (len(nodes)-1)/2 {
			return errors.Join(failures...)
		}
	}
	return nil
}
